"""Real multi-view data without a network: four descriptions of the handwritten digits that come with scikit-learn."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from fedhk._typing import FloatArray
from fedhk.data.dataset import MultiViewData

__all__ = ["load_multiview_digits"]

N_ORIENTATIONS = 8
CELL = 4  # pixels on each side


def load_multiview_digits() -> MultiViewData:
    """Load 1,797 handwritten digits (8 x 8 pixels, 10 classes) described in four views.

    Returns
    -------
    MultiViewData
        ``labels`` are the digits; there are no sites. The views are

        ``pixels`` (64)
            The grey values, 0 to 16, row by row.
        ``profiles`` (16)
            The mean grey value of each of the 8 rows, then of each of the 8 columns.
        ``fourier`` (34)
            The magnitudes of the two-dimensional Fourier transform at the 34 frequencies that the symmetry of a real
            image leaves free. A shift of the image (with wrapping) does not change them.
        ``gradients`` (32)
            Grey-value gradients counted by direction (8 bins over the full circle, weighted by their length) in each of
            the four quadrants, as in histograms of oriented gradients.

    Notes
    -----
    Features keep their own units: views need scaling before they are compared. Three of the pixels are constant. The
    images are those of `sklearn.datasets.load_digits`: the test part of UCI's optically recognised digits.

    Examples
    --------
    >>> from fedhk.datasets import load_multiview_digits
    >>> load_multiview_digits()
    MultiViewData(1797 rows, 10 classes, views: pixels (64), profiles (16), fourier (34), gradients (32))
    """
    digits = load_digits()
    images = np.asarray(digits.images, dtype=np.float64)
    views = {
        "pixels": images.reshape(len(images), -1),
        "profiles": np.hstack([images.mean(axis=2), images.mean(axis=1)]),
        "fourier": _fourier_magnitudes(images),
        "gradients": _orientation_histograms(images),
    }
    return MultiViewData(list(views.values()), np.asarray(digits.target, dtype=np.intp), tuple(views))


def _fourier_magnitudes(images: FloatArray) -> FloatArray:
    """Keep one of each pair of opposite frequencies, whose magnitudes are equal for a real image."""
    magnitudes = np.abs(np.fft.rfft2(images))
    height, width = images.shape[1:]
    free = np.ones(magnitudes.shape[1:], dtype=bool)
    free[height // 2 + 1 :, [0, width // 2]] = False  # these columns are their own mirror image
    return np.ascontiguousarray(magnitudes[:, free])


def _orientation_histograms(images: FloatArray) -> FloatArray:
    """Add up the lengths of the gradients by cell and direction, cells row by row."""
    down, right = np.gradient(images, axis=(1, 2))
    length = np.hypot(down, right)
    turn = (np.arctan2(down, right) / (2 * np.pi)) % 1.0
    direction = (np.rint(turn * N_ORIENTATIONS) % N_ORIENTATIONS).astype(np.intp)
    n_images, height, width = images.shape
    cell = (np.arange(height)[:, None] // CELL) * (width // CELL) + np.arange(width) // CELL
    n_bins = (height // CELL) * (width // CELL) * N_ORIENTATIONS
    place = np.arange(n_images)[:, None, None] * n_bins + cell * N_ORIENTATIONS + direction
    histograms: FloatArray = np.zeros(n_images * n_bins)
    np.add.at(histograms, place.ravel(), length.ravel())
    return histograms.reshape(n_images, n_bins)
