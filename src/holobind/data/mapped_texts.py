"""Texts in a file: their UTF-8 bytes one after the other, and the offset of each. They are decoded when used."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from holobind.data._array_builder import ArrayBuilder
from holobind.data.csr import release_array
from holobind.errors import DataError

CHUNK_TEXTS = 4096
RELEASED_TEXTS = 256  # texts of a sample, after which pages are released
CHUNK_BYTES = 1 << 22  # of texts that are decoded together, unless one text has more


class MappedTexts(Sequence[str]):
    """A sequence of texts, of which those in use are in memory.

    data      (bytes) uint8: all texts in UTF-8
    offsets   (texts + 1): text i is data[offsets[i] : offsets[i + 1]]
    """

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[Any]) -> None:
        self.data, self.offsets = data, offsets
        valid = data.dtype == np.uint8 and offsets.dtype.kind == "i" and data.ndim == offsets.ndim == 1
        if not valid or not len(offsets) or int(offsets[0]) != 0 or int(offsets[-1]) != len(data):
            raise DataError(f"{len(offsets)} offsets do not divide {len(data)} bytes into texts")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """A text, or a list of the texts of a slice."""
        if not isinstance(index, slice):
            at = range(len(self))[index]
            return self._decoded(bytes(self._bytes(at, at + 1)))
        at_all = range(*index.indices(len(self)))
        if at_all.step != 1 or not at_all:
            return [self[i] for i in at_all]
        block = self._bytes(at_all.start, at_all.stop).tobytes()
        start = int(self.offsets[at_all.start])
        ends = np.asarray(self.offsets[at_all.start : at_all.stop + 1], np.int64) - start
        if (ends[1:] < ends[:-1]).any():
            raise DataError("offsets of texts fall; remove the cache file of this data")
        return [self._decoded(block[a:b]) for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]

    def __iter__(self) -> Iterator[str]:
        for chunk in self.chunks():
            yield from chunk

    def chunks(self, max_texts: int | None = None, max_bytes: int | None = None) -> Iterator[list[str]]:
        """Lists of texts of at most so many bytes, unless one text has more; pages of each are released after it."""
        max_texts, max_bytes = max_texts or CHUNK_TEXTS, max_bytes or CHUNK_BYTES
        first = 0
        while first < len(self):
            start = int(self.offsets[first])
            ends = self.offsets[first + 1 : first + max_texts + 1]
            last = first + max(1, int(np.searchsorted(ends, start + max_bytes, "right")))
            yield self[first:last]
            release_array(self.data, start, int(self.offsets[last]))
            release_array(self.offsets, first, last)
            first = last

    def every(self, step: int) -> Iterator[str]:
        """Every so many texts, from the first on; pages are released as in `chunks`."""
        for first in range(0, len(self), step * RELEASED_TEXTS):
            last = min(first + step * RELEASED_TEXTS, len(self))
            yield from (self[i] for i in range(first, last, step))
            release_array(self.data, int(self.offsets[first]), int(self.offsets[last]))
            release_array(self.offsets, first, last)

    def _bytes(self, first: int, last: int) -> NDArray[np.uint8]:
        return self.data[int(self.offsets[first]) : int(self.offsets[last])]

    @staticmethod
    def _decoded(text: bytes) -> str:
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"a text is not UTF-8 ({error.reason}); remove the cache file of this data") from error


class TextBuilder:
    """Appends texts to a file of `spill_dir`, or to memory without one."""

    def __init__(self, spill_dir: Path | None) -> None:
        self._data, self._lengths = ArrayBuilder(np.uint8, spill_dir), ArrayBuilder(np.int32, spill_dir)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def append(self, text: str) -> None:
        self._waiting.append(text.encode())
        self._waiting_bytes += len(self._waiting[-1])
        if self._waiting_bytes >= CHUNK_BYTES or len(self._waiting) >= CHUNK_TEXTS:
            self._flush()

    def build(self) -> tuple[NDArray[np.uint8], NDArray[Any]]:
        """The bytes of all texts, and their offsets: the arguments of `MappedTexts`."""
        self._flush()
        return self._data.build(), self._lengths.build_offsets()

    def _flush(self) -> None:
        self._data.append(np.frombuffer(b"".join(self._waiting), np.uint8))
        self._lengths.append(np.fromiter(map(len, self._waiting), np.int32, len(self._waiting)))
        self._waiting, self._waiting_bytes = [], 0
