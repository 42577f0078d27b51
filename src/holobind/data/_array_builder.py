"""Arrays of unknown final length, in memory or in a temporary file."""

import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from holobind.data.csr import release_array

SUMMED_COUNTS = 1 << 20  # at a time


class ArrayBuilder:
    """Appends to an array. Its memory is allocated for the length that the array is expected to reach.

    spill_dir   a folder for an anonymous temporary file that holds the array instead of memory
    """

    def __init__(self, dtype: DTypeLike, spill_dir: Path | None = None) -> None:
        self.array: NDArray[Any] = np.empty(0, dtype)
        self.length = 0
        self.spill_dir = spill_dir
        self.file: IO[bytes] | None = None
        if spill_dir is not None:
            self.file = tempfile.TemporaryFile(dir=spill_dir, prefix="holobind-")  # noqa: SIM115

    @classmethod
    def in_file(cls, dtype: DTypeLike) -> "ArrayBuilder":
        """In a file of the directory for temporary files ($TMPDIR)."""
        return cls(dtype, Path(tempfile.gettempdir()))

    def append(self, values: NDArray[Any], remaining: float = 0.0) -> None:
        """Append values. `remaining` estimates what is still to come, as a multiple of the length reached now."""
        needed = self.length + len(values)
        if self.file is not None:
            self.file.write(np.ascontiguousarray(values, self.array.dtype).data)
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

    def build_offsets(self) -> NDArray[Any]:
        """Offsets of rows with these numbers of entries: 0, and the sums so far; int32 where that suffices."""
        counts = self.build()
        starts = range(0, len(counts), SUMMED_COUNTS)
        total = sum(int(counts[start : start + SUMMED_COUNTS].sum(dtype=np.int64)) for start in starts)
        offsets = ArrayBuilder(np.int32 if total < 2**31 else np.int64, self.spill_dir)
        offsets.append(np.zeros(1, np.int64))
        reached = 0
        for start in starts:
            sums = reached + np.cumsum(counts[start : start + SUMMED_COUNTS], dtype=np.int64)
            offsets.append(sums, remaining=len(counts) / (start + len(sums)) - 1)
            release_array(counts, start, start + SUMMED_COUNTS)
            reached = int(sums[-1])
        return offsets.build()
