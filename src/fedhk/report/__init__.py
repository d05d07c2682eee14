"""The page people look at: a run in one self-contained HTML file.

`run` reads a run folder and writes its page, `fitted` reads an estimator; `rows` and `projection` add what rows tell;
`maps`, `features`, `tables` and `noise` show it and `page` puts it together. Words, charts and the plain data that
all of it is made of are in `fedhk.summary`.
"""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:  # until the CLI imports fedhk.report.run
    return getattr(importlib.import_module("fedhk.report.run"), name)
