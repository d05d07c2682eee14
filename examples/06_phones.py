"""
Phones
======

Twenty people wear a phone. Each phone should tell walking, running, stairs and sitting apart. Recordings stay
on the phone, and no two people move alike.

Here every person is a site with two views, accelerometer and gyroscope. Recordings are made up: each activity
has a rhythm and a strength, and each person their own gait, phone position and sensor offset.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedhk

# steps a second, strength
ACTIVITIES = {"sit": (0.0, 0.05), "walk": (1.8, 1.0), "stairs": (1.5, 1.6), "run": (2.7, 2.6)}
TIME = np.arange(0, 4, 1 / 25)  # windows of four seconds, 25 values a second
rng = np.random.default_rng(0)


def record(activities, gain, pace, position, offset):
    """Windows of three axes: rows, axes, time."""
    steps, strength = np.array([ACTIVITIES[name] for name in activities]).T
    phase = rng.uniform(0, 2 * np.pi, (len(steps), 1, 1))
    swing = np.sin(2 * np.pi * pace * steps[:, None, None] * TIME + phase)
    signal = gain * strength[:, None, None] * position[:, None] * swing
    return signal + offset[:, None] + 0.3 * rng.normal(size=signal.shape)


def describe(windows):
    """Mean, strength and rate of each axis, instead of raw values that depend on when a window begins."""
    spectrum = np.abs(np.fft.rfft(windows - windows.mean(axis=2, keepdims=True)))
    rate = spectrum @ np.fft.rfftfreq(TIME.size, 1 / 25) / spectrum.sum(axis=2)
    return np.hstack([windows.mean(axis=2), np.log(windows.std(axis=2)), rate])


sites, truth = {}, {}
for person in range(20):
    name = f"person-{person:02d}"
    truth[name] = rng.choice(list(ACTIVITIES), 60, p=rng.dirichlet([4, 4, 2, 2]))
    gain, pace = rng.lognormal(0, 0.3), rng.normal(1, 0.08)
    sensors = [(rng.uniform(0.3, 1, 3), rng.normal(0, 1, 3)) for _ in range(2)]
    sites[name] = {
        view: describe(record(truth[name], gain, pace, *sensor))
        for view, sensor in zip(("accelerometer", "gyroscope"), sensors, strict=True)
    }

# %%
# One model for all, and own models for each person.

one = fedhk.EFKMVC(n_clusters=4, random_state=0).fit(sites)
own = fedhk.FedHKPerson(n_clusters=4, random_state=0).fit(sites)


def right(model):
    """Share of each person's windows in the right cluster."""
    return np.array([fedhk.metrics.matched_accuracy(truth[name], model.labels_[name]) for name in sites])


before, after = right(one), right(own)
print(f"mean over people: one model {before.mean():.2f}, own models {after.mean():.2f}")

# %%
# A line is a person. Left is the share of windows in the right cluster with one model for all, right with their
# own.

_, ax = plt.subplots(figsize=(4.5, 3.4), layout="constrained")
ax.plot([0, 1], [before, after], color="tab:blue", marker="o", alpha=0.6)
ax.set(xticks=[0, 1], xticklabels=["one model for all", "own model"], xlim=(-0.3, 1.3), ylabel="in the right cluster")

# %%
# The map has all people. Each wears the phone in another way, so the same activity lies in many places; the
# centres of one model (large dots) cannot be near to all of them. Lower is better on the right: own models are
# nearer to the rows of each.

_, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
fedhk.plot.view_map(own, sites, view="accelerometer", ax=axes[0])
fedhk.plot.gains(own, sites, ax=axes[1])
plt.show()

# %%
# Thousands of phones: `many sites <../scale.html>`_.
