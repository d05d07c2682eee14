"""What a run says in words, tables and figures, from plain data.

`facts` is the plain data and `model` reads it from a fitted estimator; `words` and `narrative` write sentences, `html`
tables, `drawing` and `charts` figures. Estimators show themselves in notebooks by `notebook`. Nothing here imports an
estimator, and matplotlib is loaded when the first figure is drawn.
"""
