"""Data to try the library on, and ways to spread rows over sites."""

from fedhk.data.dataset import MultiViewData, SiteTruth
from fedhk.data.digits import load_multiview_digits
from fedhk.data.generators import make_hospitals, make_sites, make_two_view_shapes
from fedhk.data.splits import split_by_group, split_dirichlet, split_even, split_views

__all__ = [
    "MultiViewData",
    "SiteTruth",
    "load_multiview_digits",
    "make_hospitals",
    "make_sites",
    "make_two_view_shapes",
    "split_by_group",
    "split_dirichlet",
    "split_even",
    "split_views",
]
