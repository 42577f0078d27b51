"""Inputs of networks: examples, and batches of them.

Examples have a length, `batch(rows)` for any rows in any order, and `sizes`, the lengths of texts, by which batches of
similar texts are made; `sizes` is None for rows of features. `empty_rows()` says which rows have nothing that a model
could know: no feature that is not 0, or no token of the vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holobind._checks import positive
from holobind._types import CsrArray, IntArray, RowIndex
from holobind.data.csr import normalise_rows_unchecked, row_entries, take_rows

PADDING, UNKNOWN = 0, 1  # the first two token ids of any vocabulary
WORD_VECTOR_SCALE = 0.1  # standard deviation of initial word vectors: below that of published ones
MAX_PADDED_TOKENS = 1 << 16  # of a batch of texts in prediction
BUCKET_BATCHES = 50  # batches whose texts are sorted by length together


class Examples(Protocol):
    """All inputs of a training or test split."""

    @property
    def sizes(self) -> IntArray | None: ...

    def __len__(self) -> int: ...

    def batch(self, rows: RowIndex) -> Any: ...

    def empty_rows(self) -> NDArray[np.bool_]: ...


class SparseBatch(NamedTuple):
    """Sparse rows: row r has values[j] at the features ids[j] for offsets[r] <= j < offsets[r + 1].

    Shapes: (total) int64, (rows) int64, (total) float32
    """

    ids: Tensor
    offsets: Tensor
    values: Tensor

    def to(self, device: torch.device) -> "SparseBatch":
        return SparseBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


class TokenBatch(NamedTuple):
    """Texts as token ids, padded with 0.

    Shapes: (rows, tokens) int64, (rows) int64
    """

    ids: Tensor
    lengths: Tensor

    def to(self, device: torch.device) -> "TokenBatch":
        return TokenBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


class TextBatch(NamedTuple):
    """Texts as rows of features and as token ids."""

    features: SparseBatch
    tokens: TokenBatch

    def to(self, device: torch.device) -> "TextBatch":
        return TextBatch(self.features.to(device), self.tokens.to(device))


class SparseExamples:
    """The rows of a CSR matrix, which may be mapped from a file larger than memory.

    normalise   scale rows to length 1 (L2)
    text_rows   the same documents as label texts are compared with them (`label_text.TextRows`); None without texts
    """

    sizes = None

    def __init__(self, X: CsrArray, normalise: bool = True, text_rows: Any = None) -> None:
        self.X, self.normalise, self.text_rows = X, normalise, text_rows

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def empty_rows(self) -> NDArray[np.bool_]:
        """Shapes: -> (rows)"""
        nonzero = np.append(0, np.cumsum(self.X.data != 0))[self.X.indptr]
        empty = nonzero[1:] == nonzero[:-1]
        return empty if self.text_rows is None else empty & self.text_rows.empty()

    def csr(self, rows: RowIndex) -> CsrArray:
        """Some rows as the network takes them.  Shapes: (n) -> sparse (n, f)"""
        X = take_rows(self.X, rows).astype(np.float32, copy=False)
        return normalise_rows_unchecked(X) if self.normalise else X

    def batch(self, rows: RowIndex) -> SparseBatch:
        X = self.csr(rows)
        ids, offsets = X.indices.astype(np.int64), X.indptr[:-1].astype(np.int64)
        return SparseBatch(torch.from_numpy(ids), torch.from_numpy(offsets), torch.from_numpy(X.data))


@dataclass(frozen=True, eq=False)
class TokenExamples:
    """Texts as token ids, one after the other: text i is ids[offsets[i] : offsets[i + 1]].

    Shapes: (total) int32, (texts + 1) int64
    """

    ids: NDArray[np.int32]
    offsets: IntArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> IntArray:
        return np.diff(self.offsets)

    def empty_rows(self) -> NDArray[np.bool_]:
        """Shapes: -> (texts)"""
        known = np.append(0, np.cumsum(self.ids > UNKNOWN))[self.offsets]
        return known[1:] == known[:-1]

    def batch(self, rows: RowIndex) -> TokenBatch:
        """Padded to the length of the longest of these texts."""
        at, starts = row_entries(self.offsets, rows)
        lengths = np.diff(starts, append=len(at))
        ids = np.full((len(lengths), lengths.max(initial=0)), PADDING, np.int64)
        ids[np.arange(ids.shape[1]) < lengths[:, None]] = self.ids[at]
        return TokenBatch(torch.from_numpy(ids), torch.from_numpy(lengths))


@dataclass(frozen=True, eq=False)
class TextExamples:
    """Texts as rows of features and as token ids, for a network that reads both."""

    features: SparseExamples
    tokens: TokenExamples

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def sizes(self) -> IntArray:
        return self.tokens.sizes

    def empty_rows(self) -> NDArray[np.bool_]:
        """Shapes: -> (texts)"""
        return self.features.empty_rows() & self.tokens.empty_rows()

    def batch(self, rows: RowIndex) -> TextBatch:
        return TextBatch(self.features.batch(rows), self.tokens.batch(rows))


@dataclass(frozen=True, eq=False)
class ExampleRows:
    """Some rows of examples, as examples."""

    examples: Examples
    rows: RowIndex

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sizes(self) -> IntArray | None:
        return None if self.examples.sizes is None else self.examples.sizes[self.rows]

    def empty_rows(self) -> NDArray[np.bool_]:
        return self.examples.empty_rows()[self.rows]

    def batch(self, rows: RowIndex) -> Any:
        return self.examples.batch(self.rows[rows])


def length_buckets(
    sizes: NDArray[Any], order: RowIndex, batch_size: int, seed: Any, bucket: int = BUCKET_BATCHES
) -> Iterator[RowIndex]:
    """Cut a shuffled epoch into batches of rows of similar size, so that short texts are not padded to long ones.

    Every `bucket` batches of `order` are sorted by size and cut; then the batches are shuffled. Which rows share a
    batch still changes with `order`, from epoch to epoch. Each row of `order` occurs once.
    """
    positive("length_buckets", "batch_size", batch_size)
    positive("length_buckets", "bucket", bucket)
    order = np.asarray(order, np.intp)
    which = np.arange(len(order)) // (batch_size * bucket)
    order = order[np.lexsort((np.asarray(sizes)[order], which))]
    for start in np.random.default_rng(seed).permutation(np.arange(0, len(order), batch_size)):
        yield order[start : start + batch_size]


def prediction_batches(
    examples: Examples, rows: RowIndex, max_rows: int, max_padded_tokens: int = MAX_PADDED_TOKENS
) -> Iterator[RowIndex]:
    """Cut rows into batches for prediction, of at most `max_rows` rows and, for texts, `max_padded_tokens` tokens.

    Texts come in order of their lengths, so that hardly anything of a batch is padding.
    """
    if examples.sizes is None:
        for first in range(0, len(rows), max_rows):
            yield rows[first : first + max_rows]
        return
    sizes = np.asarray(examples.sizes)[rows]
    order = np.argsort(sizes, kind="stable")
    rows, sizes, first = rows[order], sizes[order], 0
    while first < len(rows):
        padded = sizes[first : first + max_rows] * np.arange(1, len(rows[first : first + max_rows]) + 1)
        n = max(1, int(np.searchsorted(padded, max_padded_tokens, side="right")))
        yield rows[first : first + n]
        first += n


def ragged_labels(Y: CsrArray, rows: RowIndex) -> tuple[Tensor, Tensor]:
    """The ragged label sets of some rows of a CSR matrix.  Shapes: -> (total), (rows)"""
    at, offsets = row_entries(Y.indptr, rows)
    return torch.from_numpy(np.asarray(Y.indices[at], np.int64)), torch.from_numpy(offsets)
