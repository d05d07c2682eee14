"""Tables larger than memory: arrays that lie in a file on disk and are read as they are needed."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Tables of more bytes than this lie on disk: smaller ones cost no more than what a fit needs anyway.
LARGE_BYTES = 2**28

# Files are read in pieces of about this many bytes.
CHUNK_BYTES = 2**26


def empty_table(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Allocate an array: in memory or, if it is large, in an unnamed temporary file that is deleted with it.

    The file is in the folder for temporary files (``TMPDIR``), readable for nobody else.
    """
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if size <= LARGE_BYTES:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="fedhk-") as file:  # the map keeps it open
        return np.memmap(file, dtype, "w+", shape=shape)
