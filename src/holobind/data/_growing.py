"""Arrays that grow at their end, in memory or in a file."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Growing:
    """An array that grows at its end. It starts with the size it is expected to reach.

    room   a folder for a nameless file to hold it, in place of memory
    """

    def __init__(self, kind: Any, room: Path | None = None) -> None:
        self.array: NDArray[Any] = np.empty(0, kind)
        self.used = 0
        self.file = None if room is None else tempfile.TemporaryFile(dir=room)  # noqa: SIM115

    def add(self, more: NDArray[Any], left: float) -> None:
        """Append `more`, of which there will be about `left` times as much again."""
        need = self.used + len(more)
        if self.file is not None:
            self.file.write(more.data)
        else:
            if need > len(self.array):
                grown = np.empty(max(need + int(1.05 * left * need), 3 * len(self.array) // 2), self.array.dtype)
                grown[: self.used] = self.array[: self.used]
                self.array = grown
            self.array[self.used : need] = more
        self.used = need

    def taken(self) -> NDArray[Any]:
        if self.file is not None and self.used:
            self.file.flush()
            return np.memmap(self.file, self.array.dtype, "r", 0, (self.used,))
        self.array.resize(self.used, refcheck=False)  # gives the rest back without a copy
        return self.array
