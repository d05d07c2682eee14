"""Heat diffusion: affinities of rows to anchors, their spectrum, and the embedding of rows."""
