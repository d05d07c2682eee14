"""What a run says in words, tables and figures, from plain data.

It is apart from `fedhk.report` since it lies below the estimators, which show themselves in notebooks by it. `facts` is
the plain data and `model` reads it from a fitted estimator; `words` and `narrative` write numbers and sentences, `html`
tables, `drawing` and `charts` figures. Matplotlib is loaded when the first figure is drawn.
"""
