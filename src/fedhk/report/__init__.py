"""The page people look at: a run in one self-contained HTML file.

`facts` is what a page says, as plain data; `gather` reads it from a run folder and `fitted` from an estimator; `rows`
adds what rows tell; `charts`, `maps`, `features` and `tables` draw; `narrative` says it in words;
`under_noise` sets a run with noise beside one without; `page` puts it together.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fedhk._files import write_atomically

if TYPE_CHECKING:
    from fedhk.data.folders import Federation

__all__ = ["REPORT", "write_report"]

REPORT = "report.html"


def write_report(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    site: str | None = None,
    title: str | None = None,
    data: str | os.PathLike[str] | Federation | None = None,
) -> Path:
    """Write the page of a run folder.

    Parameters
    ----------
    run : path
        A finished run, as `fedhk fit` writes it.
    out : path, optional
        The file; by default `report.html` in the run folder, `report-<site>.html` for a site.
    site : str, optional
        Make the page of one site, with its rows and its own model.
    title : str, optional
        What the run is called on the page; by default, like its folder.
    data : path or Federation, optional
        The folder with the rows, or the rows themselves; by default the folder that the run names.

    Returns
    -------
    Path
        The file that was written.

    Raises
    ------
    fedhk.errors.DataError
        If there is no finished run, or no such site.
    """
    from fedhk.report.gather import facts_of_run  # noqa: PLC0415 - what it loads takes a second
    from fedhk.report.page import render  # noqa: PLC0415

    folder = Path(run)
    target = Path(out) if out is not None else folder / (REPORT if site is None else f"report-{site}.html")
    where = Path(data) if isinstance(data, str | os.PathLike) else data
    text = render(facts_of_run(folder, site, title=title, data=where))
    write_atomically(target, text.encode())
    return target
