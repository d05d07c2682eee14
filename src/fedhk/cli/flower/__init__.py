"""`fedhk flower`: a federation of real sites, on Flower."""
