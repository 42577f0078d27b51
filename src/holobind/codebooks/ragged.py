"""Ragged label sets, `(labels, offsets)` as in `torch.nn.EmbeddingBag`: checks, sizes, chunks and sums.

Row r holds labels[offsets[r] : offsets[r + 1]]; the last row extends to the end. A row may be empty.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from holobind.codebooks._tracing import has_values
from holobind.errors import DTypeError, LabelError, ShapeError


def checked_labels(labels: Tensor, n_labels: int, *, ndim: int | None = 1) -> Tensor:
    """The label ids, if all of them are from 0 to n_labels - 1, in any shape if `ndim` is None."""
    if not isinstance(labels, Tensor) or labels.dtype not in (torch.int64, torch.int32):
        raise DTypeError(f"labels: wants a tensor of int64 or int32, got {getattr(labels, 'dtype', type(labels))}")
    if ndim is not None and labels.ndim != ndim:
        raise ShapeError(f"labels: wants one dimension, got shape {tuple(labels.shape)}")
    if has_values(labels) and labels.numel():
        low, high = (bound.item() for bound in labels.aminmax())
        if low < 0 or high >= n_labels:
            wrong = low if low < 0 else high
            raise LabelError(f"label {wrong} is outside this space of {n_labels} labels (0 to {n_labels - 1})")
    return labels


def checked_sets(
    labels: Tensor, offsets: Tensor, n_labels: int, device: torch.device, rows: int | None = None
) -> tuple[Tensor, Tensor]:
    """The sets as int64 on `device`, if all label ids are valid and there is one set for each row."""
    checked_labels(labels, n_labels)
    if not isinstance(offsets, Tensor) or offsets.dtype not in (torch.int64, torch.int32):
        raise DTypeError(f"offsets: wants a tensor of int64 or int32, got {getattr(offsets, 'dtype', type(offsets))}")
    if offsets.ndim != 1 or (rows is not None and len(offsets) != rows):
        wanted = "one dimension" if rows is None else f"one entry for each of the {rows} rows"
        hint = "; pass indptr[:-1]" if rows is not None and offsets.shape == (rows + 1,) else ""
        raise ShapeError(f"offsets: wants {wanted}, got shape {tuple(offsets.shape)}{hint}")
    total = labels.numel()
    if not has_values(labels, offsets):
        pass
    elif len(offsets) == 0:
        if total:
            raise ShapeError(f"offsets: has no row for the {total} labels")
    elif offsets[0].item() != 0 or offsets[-1].item() > total or (offsets[1:] < offsets[:-1]).any().item():
        raise ShapeError(f"offsets: must start at 0, never fall and end at no more than the number of labels, {total}")
    return labels.to(device, torch.long), offsets.to(device, torch.long)


def set_sizes(labels: Tensor, offsets: Tensor) -> Tensor:
    """The number of labels in each set.  Shapes: (total), (rows) -> (rows)"""
    return torch.diff(offsets, append=offsets.new_full((1,), labels.numel()))


def set_chunks(
    labels: Tensor, offsets: Tensor, weights: Tensor | None, max_labels: int
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Cut the sets into chunks of whole rows: (labels, offsets, weights) of each chunk.

    A chunk has at most `max_labels` labels, unless it is a single row that has more.
    """
    if labels.numel() <= max_labels or not has_values(labels):
        yield labels, offsets, weights
        return
    edges = [*offsets.tolist(), labels.numel()]
    top = 0
    for row in range(1, len(edges)):
        if row == len(edges) - 1 or edges[row + 1] - edges[top] > max_labels:
            chunk = slice(edges[top], edges[row])
            yield labels[chunk], offsets[top:row] - edges[top], None if weights is None else weights[chunk]
            top = row


def sum_sets(vectors: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Sum the vectors of each set, each times its weight.  Shapes: (total, d), (rows), (total) -> (rows, d)"""
    each = torch.arange(len(vectors), device=vectors.device, dtype=offsets.dtype)
    return embedding_bag(each, vectors, offsets, mode="sum", per_sample_weights=weights)
