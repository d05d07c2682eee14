"""Input data: views and sites, scaling, splits and generators."""
