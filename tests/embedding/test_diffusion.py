"""Options of the diffusion: defaults, and refusals that name the option, its value and what is allowed."""

from __future__ import annotations

import numpy as np
import pytest

import fedhk
from fedhk.embedding.diffusion import Diffusion


def test_it_is_a_public_name_with_the_measured_defaults():
    assert fedhk.Diffusion is Diffusion
    assert Diffusion() == Diffusion(n_anchors=300, neighbours=9, scale=3.0, joint_weight=0.5)
    assert hash(Diffusion()) == hash(Diffusion())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_anchors": 1}, "n_anchors=1 must be a whole number from 2 on"),
        ({"n_anchors": 10.0}, "n_anchors=10.0 must be a whole number"),
        ({"neighbours": 0}, "neighbours=0 must be a whole number from 1 on"),
        ({"neighbours": True}, "neighbours=True must be a whole number"),
        ({"scale": 0.0}, "scale=0.0 must be a finite number above 0"),
        ({"scale": float("inf")}, "scale=inf must be a finite number above 0"),
        ({"scale": "wide"}, "scale='wide' must be"),
        ({"joint_weight": 1.5}, "joint_weight=1.5 must be a number from 0 to 1"),
        ({"joint_weight": float("nan")}, "joint_weight=nan must be a number from 0 to 1"),
    ],
)
def test_refusals_name_the_option_its_value_and_what_is_allowed(changes, words):
    with pytest.raises(ValueError, match=words):
        Diffusion(**changes)


def test_numbers_of_numpy_are_numbers():
    assert Diffusion(np.int64(5), np.int64(3), np.float64(2.0), np.float32(0.5)) == Diffusion(5, 3, 2.0, 0.5)
