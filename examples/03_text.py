"""
Text
====

Three newsrooms want to sort their articles by topic, without showing each other a line of them.

Titles and bodies are two views of an article. The newsrooms agree on a list of words beforehand; each counts
these words in its own articles. The articles here are drawn from lists of words.
"""

# sphinx_gallery_thumbnail_number = 2

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

import fedhk

TOPICS = {
    "health": "patient doctor hospital ward nurse fever dose trial surgery clinic heart blood",
    "sport": "match goal season coach team league injury stadium player score win cup",
    "money": "bank loan interest market share fund tax budget price trade profit rate",
    "weather": "storm rain flood wind cloud snow frost heat forecast river sea coast",
}
EVERYWHERE = "year week people city country plan report news time day part work group case point place"
rng = np.random.default_rng(0)


def write(topic, length):
    """Draw words: about half of them on the topic, the others from articles of any kind."""
    own = rng.choice(TOPICS[topic].split(), length)
    return " ".join(np.where(rng.random(length) < 0.5, own, rng.choice(EVERYWHERE.split(), length)))


words = CountVectorizer(vocabulary=" ".join([*TOPICS.values(), EVERYWHERE]).split())
sites, topics = {}, {}
for newsroom in ("Lagos", "Lima", "Lyon"):
    topics[newsroom] = rng.choice(list(TOPICS), 150)
    titles = [write(topic, 4) for topic in topics[newsroom]]
    bodies = [write(topic, rng.integers(15, 60)) for topic in topics[newsroom]]
    sites[newsroom] = {"title": words.transform(titles), "body": words.transform(bodies)}
print(sites["Lagos"]["title"].shape, "articles and words, a sparse table; one title:", titles[0])

# %%
# Tables stay sparse. What to do with counts of words (nothing, rows of length 1, tf-idf) is chosen for each
# view by what makes titles and bodies agree; ``model.choices_`` lists what was compared.

model = fedhk.EFKMVC(n_clusters=4, random_state=0).fit(sites)
for newsroom in sites:
    print(newsroom, f"{fedhk.metrics.matched_accuracy(topics[newsroom], model.labels_[newsroom]):.2f}")

# %%
# The printed numbers are the shares of articles in the cluster of their topic. To name the clusters, look at
# the words with the largest weight in each centre.

names = words.get_feature_names_out()
body = model.cluster_centers_[model.view_names_.index("body")]
special = body - body.mean(axis=0)
_, axes = plt.subplots(1, 4, figsize=(10, 2.8), layout="constrained")
for k, ax in enumerate(axes):
    top = np.argsort(special[k])[-6:]
    ax.barh(names[top], special[k, top])
    ax.set(title=f"cluster {k}", xticks=[])

# %%
# All articles in two dimensions. Titles have four words, so a title alone often tells little, and topics meet
# in the middle. In the bodies they are apart.

_, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for ax, view in zip(axes, ("title", "body"), strict=True):
    fedhk.plot.view_map(model, sites, view=view, ax=ax)
    ax.set_title(view, loc="right")
plt.show()

# %%
# The guide on `text <../guide/text.html>`_ says what to do without a common list of words.
