"""The page people look at: a run in one self-contained HTML file.

`run` reads a run folder and writes its page, `fitted` reads an estimator; `rows` and `projection` add what rows tell;
`maps`, `features`, `tables` and `noise` show it and `page` puts it together. Words, charts and the plain data that
all of it is made of are in `fedhk.summary`.
"""
