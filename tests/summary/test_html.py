"""Elements and tables: text stays text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedhk.summary.html import Cell, escape, table, tag


@given(st.text())
def test_text_cannot_leave_its_place(text):
    safe = escape(text)
    assert not set(safe) & set("<>\"'")
    assert tag("p", safe, title=text).count("<") == 2
    assert tag("p", text) == tag("p", safe)  # what is escaped is not escaped again


@given(st.text(), st.floats(allow_nan=True))
def test_cells_of_a_table_are_text(text, share):
    made = table(("a", text), [(text, Cell(text, share))])
    assert made.count("<") == table(("a", "b"), [("c", Cell("d", share))]).count("<")
