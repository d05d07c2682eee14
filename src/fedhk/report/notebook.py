"""Only until estimators/base.py imports fedhk.summary.notebook."""

from fedhk.summary.notebook import model_html

__all__ = ["model_html"]
