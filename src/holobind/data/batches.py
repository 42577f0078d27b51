"""What a network is and what it is given: batches, cut out of all examples by vectorised slicing.

Examples have a length, `batch(index)` for any rows in any order, and `sizes`, by which batches of similar rows can be
made, or None where that gains nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holobind._types import RowIndex
from holobind.data.csr import row_entries
from holobind.errors import OptionError

WORD_VECTOR_SCALE = 0.1  # of the numbers in vectors that are not given: below those of published word vectors
PADDING, UNKNOWN = 0, 1  # the first two tokens of any vocabulary


class Examples(Protocol):
    """All inputs of a training or test part."""

    @property
    def sizes(self) -> NDArray[np.int64] | None: ...

    def __len__(self) -> int: ...

    def batch(self, index: RowIndex) -> Any: ...


class Rows(NamedTuple):
    """Sparse rows: row r has values[j] at the features ids[j] for offsets[r] <= j < offsets[r + 1].

    Shapes: (total) int64, (rows) int64, (total) float32
    """

    ids: Tensor
    offsets: Tensor
    values: Tensor

    def to(self, device: torch.device) -> "Rows":
        return Rows(*(part.to(device, non_blocking=True) for part in self))


class Tokens(NamedTuple):
    """Texts as the numbers of their tokens, padded with 0.

    Shapes: (rows, longest) int64, (rows) int64
    """

    ids: Tensor
    lengths: Tensor

    def to(self, device: torch.device) -> "Tokens":
        return Tokens(*(part.to(device, non_blocking=True) for part in self))


class SparseExamples:
    """The rows of a CSR matrix, which may be mapped from a file larger than memory; scaled to length 1 if wanted."""

    sizes = None

    def __init__(self, X: Any, normalise: bool = True) -> None:
        self.X, self.normalise = X, normalise

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def batch(self, index: RowIndex) -> Rows:
        at, offsets = row_entries(self.X.indptr, index)
        values = np.asarray(self.X.data[at], np.float32)
        if self.normalise and len(values):
            row = np.repeat(np.arange(len(index)), np.diff(offsets, append=len(at)))
            lengths = np.sqrt(np.bincount(row, values.astype(np.float64) ** 2, minlength=len(index)))
            values = (values / np.where(lengths > 0, lengths, 1)[row]).astype(np.float32)
        ids = np.asarray(self.X.indices[at], np.int64)
        return Rows(torch.from_numpy(ids), torch.from_numpy(offsets), torch.from_numpy(values))


@dataclass(frozen=True, eq=False)
class TokenExamples:
    """Texts as the numbers of their tokens, one after the other: text i is ids[offsets[i] : offsets[i + 1]].

    Shapes: (total) int32, (texts + 1) int64
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def batch(self, index: RowIndex) -> Tokens:
        """Padded to the longest of them."""
        at, starts = row_entries(self.offsets, index)
        lengths = np.diff(starts, append=len(at))
        ids = np.full((len(lengths), lengths.max(initial=0)), PADDING, np.int64)
        ids[np.arange(ids.shape[1]) < lengths[:, None]] = self.ids[at]
        return Tokens(torch.from_numpy(ids), torch.from_numpy(lengths))


def bucketed(sizes: NDArray[Any], order: RowIndex, batch_size: int, seed: Any, pool: int = 50) -> Iterator[RowIndex]:
    """Cut a shuffled epoch into batches of rows of similar size, so that short texts do not pay for long ones.

    Every `pool` batches of `order` are sorted by size and cut; then the batches are shuffled. What shares a batch
    still changes with `order`, from epoch to epoch. Each row of `order` occurs once.
    """
    if batch_size < 1 or pool < 1:
        raise OptionError(f"bucketed: batch_size and pool must be at least 1; got {batch_size} and {pool}")
    order = np.asarray(order, np.intp)
    which = np.arange(len(order)) // (batch_size * pool)
    order = order[np.lexsort((np.asarray(sizes)[order], which))]
    for start in np.random.default_rng(seed).permutation(np.arange(0, len(order), batch_size)):
        yield order[start : start + batch_size]


def portions(examples: Examples, rows: RowIndex, most: int, room: int = 1 << 16) -> Iterator[RowIndex]:
    """Cut rows into batches to predict: of `most` rows, but of texts no more than have `room` for padded tokens.

    Texts come in order of their sizes, so that next to nothing of a batch is padding.
    """
    if examples.sizes is None:
        for first in range(0, len(rows), most):
            yield rows[first : first + most]
        return
    sizes = np.asarray(examples.sizes)[rows]
    order = np.argsort(sizes, kind="stable")
    rows, sizes, first = rows[order], sizes[order], 0
    while first < len(rows):
        padded = sizes[first : first + most] * np.arange(1, len(rows[first : first + most]) + 1)
        n = max(1, int(np.searchsorted(padded, room, side="right")))
        yield rows[first : first + n]
        first += n


def ragged_labels(Y: Any, index: RowIndex) -> tuple[Tensor, Tensor]:
    """The ragged label sets of some rows of a CSR matrix.  Shapes: -> (total), (rows)"""
    at, offsets = row_entries(Y.indptr, index)
    return torch.from_numpy(np.asarray(Y.indices[at], np.int64)), torch.from_numpy(offsets)
