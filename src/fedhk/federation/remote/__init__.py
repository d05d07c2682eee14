"""Sites that are elsewhere: what they keep in files, what they answer, and how a server finds them."""
