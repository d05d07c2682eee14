"""Views as witnesses: what is chosen by how much views agree, with each other and with what sites find alone."""
