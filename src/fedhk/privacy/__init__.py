"""What protects the samples at the sites: noise and its accounting, secure summation, robust aggregation."""
