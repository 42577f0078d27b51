"""What networks take: a batch, and the examples from which batches are cut."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holobind.errors import OptionError

PADDING = 0
UNKNOWN = 1


class Tokens(NamedTuple):
    """A batch of texts: `ids` (rows, longest) int64, padded with 0; `lengths` (rows) int64."""

    ids: Tensor
    lengths: Tensor


@dataclass(frozen=True, eq=False)
class TokenExamples:
    """Texts as token ids, one after the other: text i is ids[offsets[i] : offsets[i + 1]].

    ids (total) int32, offsets (texts + 1) int64
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def batch(self, index: NDArray[Any]) -> Tokens:
        """The texts with these numbers, padded to the longest of them."""
        starts = self.offsets[index]
        lengths = self.offsets[np.asarray(index) + 1] - starts
        ids = np.zeros((len(lengths), lengths.max(initial=0)), np.int64)
        ends = lengths.cumsum()
        each = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
        ids[np.arange(ids.shape[1]) < lengths[:, None]] = self.ids[each]
        return Tokens(torch.from_numpy(ids), torch.from_numpy(lengths))


def bucketed(
    lengths: NDArray[Any], order: NDArray[Any], batch_size: int, seed: int, pool: int = 50
) -> Iterator[NDArray[np.int64]]:
    """Cut a shuffled epoch into batches of texts of similar length, so that short texts do not pay for long ones.

    Every `pool` batches of `order` are sorted by length and cut; then the batches are shuffled. What shares a batch
    still changes from epoch to epoch with `order`. Each text occurs once.
    """
    if batch_size < 1 or pool < 1:
        raise OptionError(f"bucketed: batch_size and pool must be at least 1; got {batch_size} and {pool}")
    order = np.asarray(order, np.int64)
    which = np.arange(len(order)) // (batch_size * pool)
    order = order[np.lexsort((np.asarray(lengths)[order], which))]
    starts = np.arange(0, len(order), batch_size)
    for start in np.random.default_rng(seed).permutation(starts):
        yield order[start : start + batch_size]
