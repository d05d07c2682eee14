"""Only until cli/demo.py imports fedhk.report.run."""

from fedhk.report.run import COMPARISON as BESIDES
from fedhk.report.run import read_facts as facts_of_run

__all__ = ["BESIDES", "facts_of_run"]
