"""
Mixed columns
=============

You have one data frame with numbers, text, dates and gaps, and a column that says where each row comes from.

``from_frame`` makes sites and views of it. Text becomes categories, dates become days, and empty cells stay
missing.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fedhk

rng = np.random.default_rng(0)
n = 600
group = rng.integers(3, size=n)
beat = np.where(rng.random(n) < 0.8, group, rng.integers(3, size=n))
frame = pd.DataFrame(
    {
        "hospital": rng.choice(["bern", "oslo", "rome"], n),
        "age": 40 + 16 * group + rng.normal(0, 4, n),
        "sex": np.where(rng.random(n) < np.array([0.2, 0.8, 0.5])[group], "F", "M"),
        "smoker": rng.random(n) < np.array([0.1, 0.2, 0.8])[group],
        "pulse": 55 + 14 * group + rng.normal(0, 5, n),
        "rhythm": np.array(["sinus", "fibrillation", "paced"])[beat],
    }
)
frame.loc[rng.random(n) < 0.1, "pulse"] = np.nan
frame.loc[rng.random(n) < 0.1, "sex"] = None
print(frame.head(3))

# %%
# Say which columns belong together; each group of columns is a view.

views = {"record": ["age", "sex", "smoker"], "heart": ["pulse", "rhythm"]}
sites = fedhk.from_frame(frame, site="hospital", views=views)
model = fedhk.EFKMVC(n_clusters=3, random_state=0).fit(sites)
print(model.labels_frame().head(3))

# %%
# What is special about each cluster, in standard deviations from all other rows; levels of text are columns of
# their own. Columns with a star made the clusters, so testing them would be circular.

found = fedhk.profile(model, sites)
_, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
fedhk.plot.profile(model, found=found, ax=ax)

# %%
# The same as the "Table 1" of a paper; ``found.table().save("table-1.tex")`` writes it for LaTeX.

found.table()

# %%
# How sure are the labels? Rows near 1 are clear, rows below 0.5 lie between clusters.

_, ax = plt.subplots(figsize=(5, 2.6), layout="constrained")
fedhk.plot.certainty(model, sites, ax=ax)
plt.show()

# %%
# The guide on `data frames <../guide/data-frames.html>`_ says what each kind of column becomes.
