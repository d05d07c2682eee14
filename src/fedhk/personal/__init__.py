"""What a site may have of its own: one file per component, the model that they make, and its calibration."""
