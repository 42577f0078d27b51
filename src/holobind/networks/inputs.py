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
from scipy.sparse import csr_array
from torch import Tensor, nn

from holobind.errors import OptionError

PADDING, UNKNOWN = 0, 1  # the first two tokens of any vocabulary
Index = NDArray[np.intp]


class Network(nn.Module):
    """The body of a model: `forward(inputs) -> (rows, out_features)`."""

    out_features: int
    n_features: int | None = None  # of a network on rows of features
    deflated: tuple[str, ...] = ()  # of its tensors, those that a file holds deflated

    @property
    def last(self) -> list[nn.Module]:
        """The layers whose sum is the output."""
        raise NotImplementedError

    def config(self) -> dict[str, Any]:
        """JSON values that, as keyword arguments of its class, build it again."""
        raise NotImplementedError

    def n_weights(self) -> int:
        """How many numbers were learned."""
        return sum(p.numel() for p in self.parameters())

    def prepare(self) -> Any:
        """Make what prediction needs besides its tensors; called before batches are worked on side by side."""

    def check(self) -> None:
        """Raise an error if tensors from a file, though of the right shapes, make no such network."""


class Examples(Protocol):
    """All inputs of a training or test part."""

    @property
    def sizes(self) -> NDArray[np.int64] | None: ...

    def __len__(self) -> int: ...

    def batch(self, index: Index) -> Any: ...


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

    def batch(self, index: Index) -> Rows:
        at, offsets = slices(self.X.indptr, index)
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

    def batch(self, index: Index) -> Tokens:
        """Padded to the longest of them."""
        at, starts = slices(self.offsets, index)
        lengths = np.diff(starts, append=len(at))
        ids = np.full((len(lengths), lengths.max(initial=0)), PADDING, np.int64)
        ids[np.arange(ids.shape[1]) < lengths[:, None]] = self.ids[at]
        return Tokens(torch.from_numpy(ids), torch.from_numpy(lengths))


def bucketed(sizes: NDArray[Any], order: Index, batch_size: int, seed: Any, pool: int = 50) -> Iterator[Index]:
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


def portions(examples: Examples, rows: Index, most: int, room: int = 1 << 16) -> Iterator[Index]:
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


def label_sets(Y: Any, index: Index) -> tuple[Tensor, Tensor]:
    """The ragged label sets of some rows of a CSR matrix.  Shapes: -> (total), (rows)"""
    at, offsets = slices(Y.indptr, index)
    return torch.from_numpy(np.asarray(Y.indices[at], np.int64)), torch.from_numpy(offsets)


def label_rows(Y: Any, index: Index) -> Any:
    """The same rows as a CSR matrix; scipy's own slicing would look at all of one that is mapped from a file."""
    at, offsets = slices(Y.indptr, index)
    ends = np.append(offsets, len(at))
    return csr_array((np.ones(len(at), np.int32), Y.indices[at], ends), shape=(len(index), Y.shape[1]))


def slices(indptr: NDArray[Any], index: Index) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the entries of some rows are, one row after the other, and where in that list each row starts."""
    if len(index) and (np.diff(index) == 1).all():  # rows that stand together, mostly
        ends = np.asarray(indptr[index[0] : index[-1] + 2], np.int64)
        return np.arange(ends[0], ends[-1]), ends[:-1] - ends[0]
    starts = np.asarray(indptr[index], np.int64)
    counts = np.asarray(indptr[index + 1], np.int64) - starts
    ends = np.cumsum(counts)
    offsets = ends - counts
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - offsets, counts) + np.arange(total), offsets
