"""Arrays of unknown final length, in memory or in a temporary file."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class ArrayBuilder:
    """Appends to an array. Its memory is allocated for the length that the array is expected to reach.

    spill_dir   a folder for an anonymous temporary file that holds the array instead of memory
    """

    def __init__(self, dtype: DTypeLike, spill_dir: Path | None = None) -> None:
        self.array: NDArray[Any] = np.empty(0, dtype)
        self.length = 0
        self.file = None if spill_dir is None else tempfile.TemporaryFile(dir=spill_dir)  # noqa: SIM115

    def append(self, values: NDArray[Any], remaining: float) -> None:
        """Append values. `remaining` estimates what is still to come, as a multiple of the length reached now."""
        needed = self.length + len(values)
        if self.file is not None:
            self.file.write(values.data)
        else:
            if needed > len(self.array):
                capacity = max(needed + int(1.05 * remaining * needed), 3 * len(self.array) // 2)
                larger = np.empty(capacity, self.array.dtype)
                larger[: self.length] = self.array[: self.length]
                self.array = larger
            self.array[self.length : needed] = values
        self.length = needed

    def build(self) -> NDArray[Any]:
        """The finished array; a memory map if it lies in a file."""
        if self.file is not None and self.length:
            self.file.flush()
            return np.memmap(self.file, self.array.dtype, "r", 0, (self.length,))
        self.array.resize(self.length, refcheck=False)  # frees the unused memory without a copy
        return self.array
