"""A first layer on sparse features whose rows are divided among processes: each has 1 / w of the weights.

Process p of w owns the features i with i mod w = p. A step moves entries and vectors of the batch, never weights:

    entries of the batch's rows        to the owners of their features         12 bytes each
    partial sums of all rows           from every owner to the row's process    4 h bytes each
    gradients of the outputs           to all owners                            4 h bytes for each row

    y[r] = sum over owners p of  sum_j values[j] W_p[ids[j]]         over the entries j of row r whose feature p owns

An owner gets the gradients of all rows of the batch, so that of its weights is complete: no process sums them up.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag, pad

from holobind._processes import Processes, connected
from holobind.codebooks.ragged import set_sizes
from holobind.data.batches import SparseBatch
from holobind.data.csr import scratch_array
from holobind.networks.sparse_linear import SparseLinear, feature_gradient

BLOCK_BYTES = 1 << 26  # of the weights of all processes that are drawn or gathered at a time
MAX_IN_MEMORY_BYTES = 1 << 28  # of the weights of all processes, once gathered; more are mapped from a temporary file


class ShardedLinear(SparseLinear):
    """`SparseLinear` with the rows of this process. All processes call it together, each with rows of its own.

    Parameters: `weight` (ceil((n_features - rank) / processes), out_features).

    Its gradient is the mean over processes, as DistributedDataParallel computes it for other parameters, but has only
    the rows of this process.
    """

    def __init__(
        self, n_features: int, out_features: int, processes: Processes, *, scale: float = 0.0, seed: int = 0
    ) -> None:
        n_own = len(range(processes.rank, n_features, processes.size))
        super().__init__(n_own, out_features)
        self.n_features, self.processes = n_features, processes
        self.group: Any = None
        if self.weight.is_meta:
            return
        # A group of its own: gradients of other layers are summed at the same time.
        self.group = dist.new_group(backend="gloo")
        draw = torch.Generator().manual_seed(seed)
        for first, last in self._blocks(4 * out_features):  # the same numbers as `SparseLinear` draws
            block = torch.empty(last - first, out_features).uniform_(-scale, scale, generator=draw)
            with torch.no_grad():
                self.weight[self._own(first, last)] = block[(processes.rank - first) % processes.size :: processes.size]

    def forward(self, rows: SparseBatch) -> Tensor:  # type: ignore[override]
        """Shapes: sparse (rows, n_features) -> (rows, out_features)"""
        with connected():
            entries = _Entries.exchange(rows, self.processes, self.group)
            return _ShardedProduct.apply(self.weight, entries)

    def own(self, whole: Tensor) -> Tensor:
        """The rows of this process.  Shapes: (n_features, ...) -> (own, ...)"""
        return whole[self.processes.rank :: self.processes.size]

    def whole(self, own: Tensor, everywhere: bool = True) -> Tensor | None:
        """The rows of all processes; None on others than the first if not `everywhere`. All processes call it.

        Shapes: (own, ...) -> (n_features, ...)
        """
        rank, size = self.processes.rank, self.processes.size
        wanted = everywhere or rank == 0
        whole = _empty((self.n_features, *own.shape[1:]), own.dtype) if wanted else None
        for first, last in self._blocks(own[:1].nbytes):
            parts = self.processes.gather(own[self._own(first, last)].detach().contiguous().numpy())
            for i, part in enumerate(parts):
                if whole is not None:
                    whole[first:last][(i - first) % size :: size] = torch.from_numpy(part)
        return whole

    def joined(self) -> SparseLinear:
        """The layer with the rows of all processes. All processes call it."""
        layer = SparseLinear(1, self.weight.shape[1])
        weight = self.whole(self.weight)
        assert weight is not None
        layer.weight, layer.num_embeddings = nn.Parameter(weight, self.weight.requires_grad), self.n_features
        return layer

    def _blocks(self, row_bytes: int) -> list[tuple[int, int]]:
        """Ranges of all features, of about BLOCK_BYTES each."""
        step = max(self.processes.size, BLOCK_BYTES // max(row_bytes, 1))
        return [(first, min(first + step, self.n_features)) for first in range(0, self.n_features, step)]

    def _own(self, first: int, last: int) -> slice:
        """The rows of this process whose features are from first to last."""
        rank, size = self.processes.rank, self.processes.size
        return slice(len(range(rank, first, size)), len(range(rank, last, size)))


class _Entries(NamedTuple):
    """The entries of all rows of a batch whose features this process owns, ordered by rows.

    ids      rows of this process's weights
    rows     of the batch: those of each process follow those of the processes before it
    counts   how many rows each process has
    """

    ids: Tensor
    rows: Tensor
    values: Tensor
    counts: list[int]
    rank: int
    group: Any

    @classmethod
    def exchange(cls, batch: SparseBatch, processes: Processes, group: Any) -> "_Entries":
        """Send the entries of this process's rows to the owners of their features, and get those of its own."""
        size, n_rows = processes.size, len(batch.offsets)
        owner = batch.ids % size
        order = owner.argsort(stable=True)
        row = torch.arange(n_rows).repeat_interleave(set_sizes(batch.ids, batch.offsets))
        packed = torch.stack(
            [(batch.ids // size).int(), row.int(), batch.values.detach().float().contiguous().view(torch.int32)], 1
        )[order]
        sent = torch.bincount(owner, minlength=size)
        announced = torch.stack([sent, torch.full((size,), n_rows)], 1)
        found = torch.empty_like(announced)
        dist.all_to_all_single(found, announced, group=group)
        received, counts = found[:, 0].tolist(), found[:, 1].tolist()
        entries = packed.new_empty(sum(received), 3)
        dist.all_to_all_single(entries, packed, received, sent.tolist(), group=group)
        starts = torch.tensor(np.cumsum([0, *counts[:-1]])).repeat_interleave(torch.tensor(received))
        ids, rows, values = (column.contiguous() for column in entries.T)
        return cls(ids.long(), rows.long() + starts, values.view(torch.float32), counts, processes.rank, group)


class _ShardedProduct(Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, entries: _Entries) -> Tensor:
        ctx.entries, ctx.shape = entries, weight.shape
        counts, n_own = entries.counts, entries.counts[entries.rank]
        offsets = torch.searchsorted(entries.rows, torch.arange(sum(counts)))
        values = entries.values.to(weight.dtype)
        partial = embedding_bag(entries.ids, weight, offsets, mode="sum", per_sample_weights=values)
        mine = partial.new_empty(len(counts) * n_own, partial.shape[1])
        dist.all_to_all_single(mine, partial, [n_own] * len(counts), counts, group=entries.group)
        return mine.view(len(counts), n_own, -1).sum(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None]:
        if not ctx.needs_input_grad[0]:
            return None, None
        entries = ctx.entries
        most = max(entries.counts)
        padded = pad(grad, (0, 0, 0, most - len(grad))).contiguous()
        gathered = [torch.empty_like(padded) for _ in entries.counts]
        with connected():
            dist.all_gather(gathered, padded, group=entries.group)
        grads = torch.cat([part[:n] for part, n in zip(gathered, entries.counts, strict=True)])
        values = entries.values / len(entries.counts)
        return feature_gradient(entries.ids, entries.rows, values, grads, ctx.shape), None


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor without values, in memory or, where it is large, in a temporary file."""
    n = math.prod(shape)
    if n * dtype.itemsize <= MAX_IN_MEMORY_BYTES:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(scratch_array(n, torch.empty(0, dtype=dtype).numpy().dtype)).view(shape)


def sharded_layers(module: nn.Module) -> dict[str, ShardedLinear]:
    """The layers whose rows are divided among processes, by the names of their weights."""
    return {f"{name}.weight": layer for name, layer in module.named_modules() if isinstance(layer, ShardedLinear)}


def join_shards(module: nn.Module) -> None:
    """Replace these layers by whole ones, in every process. All processes call it."""
    for name, layer in sharded_layers(module).items():
        parent, _, own = name.removesuffix(".weight").rpartition(".")
        setattr(module.get_submodule(parent), own, layer.joined())
