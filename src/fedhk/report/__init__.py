"""The page people look at: a run in one self-contained HTML file.

`run` reads a run folder and writes its page; `rows` reads what rows tell, and a fitted estimator with its rows; `maps`,
`features`, `tables` and `noise` show it and `page` puts it together. The rest is in `fedhk.summary`.
"""
