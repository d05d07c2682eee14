"""Scores of fitted models, comparisons with other methods, and privacy audits."""

from fedhk.evaluation.scores import evaluate, measure_rows, site_means

__all__ = ["evaluate", "measure_rows", "site_means"]
