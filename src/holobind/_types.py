"""Types that more than one room uses."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

# A sparse matrix: float32 features, or int32 labels. scipy's own type parameters are not settled yet.
CsrArray: TypeAlias = csr_array[Any, tuple[int, int]]
FloatArray: TypeAlias = NDArray[np.float32]
IntArray: TypeAlias = NDArray[np.int64]
RowIndex: TypeAlias = NDArray[np.intp]  # which rows

# Called with what is being done, and the fraction of it that is done.
ProgressCallback: TypeAlias = Callable[[str, float], None]
