"""Sites on other machines: what they allow, what they reply, and what they keep in files."""
