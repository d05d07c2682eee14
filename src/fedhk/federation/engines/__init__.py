"""Engines: the way from the server to the sites, in this process or behind a transport."""
