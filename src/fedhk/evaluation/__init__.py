"""What a fitted model is worth and what it gives away: scores of sites, and audits of what leaves them."""

from fedhk.evaluation.scores import evaluate, measure_rows, site_means

__all__ = ["evaluate", "measure_rows", "site_means"]
