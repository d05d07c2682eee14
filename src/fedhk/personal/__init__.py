"""Personal models: one file per component, the own model that they make up, and calibration."""
