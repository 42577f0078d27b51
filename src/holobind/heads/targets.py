"""The forms of targets that `head.loss` takes, as one of two: class indices or ragged label sets.

For an input h of shape (*batch, in) and L labels, with rows = product of batch:

    class indices     integers of shape batch; `ignore_index` marks rows without a target
    padded sets       integers of shape (*batch, m): label ids, filled up with `ignore_index` or any negative number
    multi-hot         bool, or floating point with nothing but 0 and 1, of shape (*batch, L)
    probabilities     other floating-point numbers of shape (*batch, L); each row sums to 1, or is 0 throughout
    sparse            multi-hot or probabilities: a torch COO or CSR tensor, or a scipy matrix, of shape (rows, L)
    ragged sets       (labels, offsets) as in `torch.nn.EmbeddingBag`: `loss(h, labels, offsets)` or a tuple
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holobind._checks import shape_text
from holobind.codebooks._tracing import has_values
from holobind.codebooks.ragged import checked_labels, checked_sets, set_sizes
from holobind.errors import DTypeError, OptionError, ShapeError

DEFAULT_IGNORE_INDEX = -100  # that of torch.nn.CrossEntropyLoss
MAX_SUM_ERROR = 1e-3  # of the probabilities of a row
_INTEGERS = (torch.int64, torch.int32)


def check_label_counts(counts: Tensor, n_labels: int) -> None:
    """Raise unless there is one count for each label, finite and not negative, as far as the counts have values."""
    if counts.shape != (n_labels,):
        raise ShapeError(f"set_prior: wants one count for each of {n_labels} labels, got shape {tuple(counts.shape)}")
    wrong = ~((counts >= 0) & (counts < torch.inf))
    if has_values(wrong) and bool(wrong.any()):
        label = int(wrong.nonzero()[0])
        raise OptionError(
            f"set_prior: counts must be finite numbers, 0 or larger; label {label} has {float(counts[label])}"
        )


@dataclass(frozen=True, eq=False)
class Targets:
    """Class indices, or label sets.

    labels          class indices: (rows), 0 where a row has no target. Sets: (total)
    offsets         sets: (rows). Class indices have none
    valid           class indices: (rows) bool, whether a row has a target, or None if all have one
    probabilities   sets: (total), or None if the labels of a set have equal probabilities
    """

    labels: Tensor
    offsets: Tensor | None = None
    valid: Tensor | None = None
    probabilities: Tensor | None = None

    @property
    def sizes(self) -> Tensor:
        """The number of labels of each set.  Shapes: -> (rows)"""
        assert self.offsets is not None
        return set_sizes(self.labels, self.offsets)

    def row_of_labels(self) -> Tensor:
        """The row of each label of the sets.  Shapes: -> (total)"""
        assert self.offsets is not None
        rows = torch.arange(len(self.offsets), device=self.labels.device)
        return rows.repeat_interleave(self.sizes, output_size=len(self.labels))


def read_targets(
    target: Any, offsets: Tensor | None, batch: torch.Size, n_labels: int, device: torch.device, ignore_index: int
) -> Targets:
    """Targets of any of the forms above for a batch; a HolobindError says what is wrong with others."""
    if isinstance(target, tuple):
        if offsets is not None or len(target) != 2:
            raise ShapeError(f"loss: a tuple is (labels, offsets); got {len(target)} elements and offsets beside it")
        target, offsets = target
    if offsets is not None:
        return Targets(*checked_sets(target, offsets, n_labels, device, batch.numel()))
    if hasattr(target, "tocsr"):
        return _from_scipy(target, batch, n_labels, device)
    if not isinstance(target, Tensor):
        raise DTypeError(f"loss: wants targets as a tensor, a sparse matrix or (labels, offsets), got {type(target)}")
    if target.layout != torch.strided:
        return _from_sparse(target, batch, n_labels, device)
    target = target.to(device)
    if target.dtype in _INTEGERS:
        if target.shape == batch:
            return _from_classes(target.reshape(-1), n_labels, ignore_index)
        if target.ndim == len(batch) + 1 and target.shape[:-1] == batch:
            return _from_padded(target.flatten(0, -2), n_labels, ignore_index)
    elif target.shape == (*batch, n_labels) and (target.dtype == torch.bool or target.is_floating_point()):
        return _from_dense(target.reshape(-1, n_labels))
    raise ShapeError(_wrong_shape(target, batch, n_labels))


def _wrong_shape(target: Tensor, batch: torch.Size, n_labels: int) -> str:
    shape = tuple(batch)
    return (
        f"loss: wants class indices (int64, shape {shape}), padded label ids (int64, {shape_text(*shape, 'm')}), "
        f"multi-hot or probabilities (bool or floating point, {(*shape, n_labels)}) or (labels, offsets); "
        f"got {target.dtype} of shape {tuple(target.shape)}"
    )


def _from_classes(labels: Tensor, n_labels: int, ignore_index: int) -> Targets:
    valid = labels != ignore_index
    labels = torch.where(valid, labels, 0).long()
    checked_labels(labels, n_labels)
    everything = has_values(valid) and bool(valid.all())
    return Targets(labels, valid=None if everything else valid)


def _from_padded(ids: Tensor, n_labels: int, ignore_index: int) -> Targets:
    if not has_values(ids):
        raise OptionError(
            "loss: padded sets cannot be traced, their number of labels is not known; take (labels, offsets)"
        )
    filled = (ids < 0) | (ids == ignore_index)
    if ids.shape[1] == n_labels and not filled.any() and bool((ids <= 1).all()):
        raise OptionError(
            f"loss: {ids.dtype} of {n_labels} columns of 0 and 1 could be label ids or multi-hot; "
            "for multi-hot take .bool()"
        )
    present = ~filled
    labels, sizes = ids[present].long(), present.sum(1)
    return Targets(checked_labels(labels, n_labels), sizes.cumsum(0) - sizes)


def _from_dense(matrix: Tensor) -> Targets:
    if not has_values(matrix):
        raise OptionError(
            "loss: dense targets cannot be traced, their number of labels is not known; take class indices"
        )
    present = matrix != 0
    row, labels = present.nonzero().T
    sizes = present.sum(1)
    return _with_values(labels, sizes, None if matrix.dtype == torch.bool else matrix[row, labels])


def _from_sparse(matrix: Tensor, batch: torch.Size, n_labels: int, device: torch.device) -> Targets:
    _check_sparse_shape(tuple(matrix.shape), batch, n_labels)
    if matrix.layout == torch.sparse_coo:
        matrix = matrix.coalesce()
        (row, labels), values = matrix.indices(), matrix.values()
        sizes = row.bincount(minlength=matrix.shape[0])
    elif matrix.layout == torch.sparse_csr:
        labels, values, sizes = matrix.col_indices(), matrix.values(), matrix.crow_indices().diff()
    else:
        raise DTypeError(f"loss: wants sparse targets in COO or CSR layout, got {matrix.layout}")
    return _from_entries(labels, values, sizes, n_labels, device)


def _from_entries(labels: Tensor, values: Tensor, sizes: Tensor, n_labels: int, device: torch.device) -> Targets:
    checked_labels(labels, n_labels)
    row = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
    kept = values != 0  # entries that are stored and 0 are no labels
    sizes = row[kept].bincount(minlength=len(sizes))
    given = None if values.dtype == torch.bool else values[kept].to(device)
    return _with_values(labels[kept].long().to(device), sizes.to(device), given)


def _from_scipy(matrix: Any, batch: torch.Size, n_labels: int, device: torch.device) -> Targets:
    matrix = matrix.tocsr()
    _check_sparse_shape(tuple(int(n) for n in matrix.shape), batch, n_labels)
    labels, values, ends = (torch.as_tensor(part) for part in (matrix.indices, matrix.data, matrix.indptr))
    return _from_entries(labels, values, ends.diff(), n_labels, device)


def _check_sparse_shape(shape: tuple[int, ...], batch: torch.Size, n_labels: int) -> None:
    if shape != (batch.numel(), n_labels):
        raise ShapeError(f"loss: wants sparse targets of shape {(batch.numel(), n_labels)}, got {shape}")


def _with_values(labels: Tensor, sizes: Tensor, values: Tensor | None) -> Targets:
    """Sets of labels, with probabilities unless all values are 1."""
    offsets = sizes.cumsum(0) - sizes
    if values is None or bool((values == 1).all()):
        return Targets(labels, offsets)
    if not values.is_floating_point():
        raise DTypeError(f"loss: a multi-hot matrix has nothing but 0 and 1, got {values.dtype} with other numbers")
    found = Targets(labels, offsets, probabilities=values)
    total = values.new_zeros(len(sizes)).index_add(0, found.row_of_labels(), values)
    wrong = ~((total - 1).abs() <= MAX_SUM_ERROR) & (sizes > 0)
    if bool((values < 0).any()) or bool(wrong.any()):
        row = int(wrong.nonzero()[0]) if bool(wrong.any()) else int(found.row_of_labels()[values < 0][0])
        raise OptionError(
            f"loss: probabilities are at least 0 and sum to 1; those of row {row} sum to {total[row].item():.4g}, "
            f"the least is {values.min().item():.4g}"
        )
    return found
