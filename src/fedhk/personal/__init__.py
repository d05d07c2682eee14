"""What a site may have of its own: its calibration, and the components of its own model."""
