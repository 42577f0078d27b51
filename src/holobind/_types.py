"""Type aliases that several packages use."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

# A sparse matrix of float32 features or int32 labels. The type parameters of scipy's class are not stable yet.
CsrArray: TypeAlias = csr_array[Any, tuple[int, int]]
FloatArray: TypeAlias = NDArray[np.float32]
IntArray: TypeAlias = NDArray[np.int64]
RowIndex: TypeAlias = NDArray[np.intp]  # indices of rows

# Called with a description of the current step and the fraction of it that is done.
ProgressCallback: TypeAlias = Callable[[str, float], None]
