"""Sites that are elsewhere: what they let pass, what they answer, and what they keep in files."""
