"""Heat diffusion: affinities to anchors, their spectrum, and rows embedded in it."""
