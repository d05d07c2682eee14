"""What comes in: views and sites, scaling, splits and generators."""
