"""Engines carry messages from the server to the sites, in this process or over a network."""
