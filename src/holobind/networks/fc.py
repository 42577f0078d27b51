"""Fully connected networks on sparse rows."""

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear, relu

from holobind._processes import ALONE, Processes
from holobind.data.batches import SparseBatch
from holobind.errors import OptionError
from holobind.networks.base import Network
from holobind.networks.sharded import ShardedLinear
from holobind.networks.sparse_linear import SparseLinear, on_meta


class FC(Network):
    """Fully connected layers with ReLU on sparse rows; the paper's network has two of 512.

    hidden           sizes of the hidden layers; without any it is linear and needs `out_features`
    out_features     size of one more layer without ReLU; None: the last hidden layer is the output
    linear_skip      add x W to that layer's output, a linear layer in parallel; the hidden layers then start at 0
    dropout          fraction of the hidden units dropped in training
    feature_dropout  fraction of each row's features dropped in training
    shards           processes that divide the features of the first layer while they train it (`ShardedLinear`)
    """

    kind = "fc"

    def __init__(
        self,
        n_features: int,
        hidden: Sequence[int] = (512, 512),
        out_features: int | None = None,
        *,
        linear_skip: bool = False,
        dropout: float = 0.0,
        feature_dropout: float = 0.0,
        seed: int = 0,
        shards: Processes = ALONE,
    ) -> None:
        super().__init__()
        sizes = [*hidden, *([] if out_features is None else [out_features])]
        if not sizes or min(n_features, *sizes) < 1:
            raise OptionError(
                f"FC: wants positive sizes, and hidden layers or out_features; got {n_features} features, "
                f"hidden {tuple(hidden)}, out_features {out_features}"
            )
        if linear_skip and (out_features is None or not hidden):
            raise OptionError("FC: linear_skip is in parallel to hidden layers and needs out_features")
        if not (0 <= dropout < 1 and 0 <= feature_dropout < 1):
            raise OptionError(f"FC: dropout is a fraction from 0 to below 1; got {dropout} and {feature_dropout}")
        self.n_features, self.hidden, self.last_size = n_features, tuple(hidden), out_features
        self.dropout, self.feature_dropout = dropout, feature_dropout
        self.out_features = sizes[-1]
        # Rows have length 1, and with this scale so have their images. A linear network starts at 0.
        scale = sqrt(3 / sizes[0]) if hidden else 0.0
        self.first: SparseLinear
        if shards.size > 1:
            self.first = ShardedLinear(n_features, sizes[0], shards, scale=scale, seed=seed)
        else:
            self.first = SparseLinear(n_features, sizes[0], scale=scale, seed=seed)
        self.first_bias = nn.Parameter(torch.zeros(sizes[0]))
        self.layers = nn.ModuleList(_linear(a, b, seed + 1 + i) for i, (a, b) in enumerate(pairwise(sizes)))
        self.linear_skip = SparseLinear(n_features, self.out_features) if linear_skip else None
        if linear_skip and not on_meta():
            nn.init.zeros_(self.layers[-1].weight)  # type: ignore[arg-type]

    def forward(self, rows: SparseBatch) -> Tensor:
        """Shapes: sparse (rows, n_features) -> (rows, out_features)"""
        if self.training and self.feature_dropout:
            rows = rows._replace(values=dropout(rows.values, self.feature_dropout))
        h = self.first(rows) + self.first_bias
        for layer in self.layers:
            h = linear(self._active(h), layer.weight, layer.bias)  # type: ignore[arg-type]
        if self.last_size is None:
            h = self._active(h)
        return h if self.linear_skip is None else h + self.linear_skip(rows)

    @property
    def output_layers(self) -> list[nn.Module]:
        deep = self.layers[-1] if len(self.layers) else self.first
        return [deep] if self.linear_skip is None else [deep, self.linear_skip]

    def linear_path(self) -> tuple[Tensor, Tensor] | None:
        """The matrix and bias of x W + b: the whole of a linear network, or its linear skip."""
        if self.linear_skip is not None:
            return self.linear_skip.weight, self.layers[-1].bias  # type: ignore[return-value]
        return None if self.hidden else (self.first.weight, self.first_bias)

    def describe(self) -> str:
        sizes = ", ".join(map(str, self.hidden))
        network = f"fully connected network with hidden layers of {sizes}" if sizes else "linear network"
        return network if self.linear_skip is None else f"{network} and a linear skip"

    def _active(self, h: Tensor) -> Tensor:
        return dropout(relu(h), self.dropout, self.training)

    def config(self) -> dict[str, Any]:
        return {
            "n_features": self.n_features,
            "hidden": list(self.hidden),
            "out_features": self.last_size,
            "linear_skip": self.linear_skip is not None,
            "dropout": self.dropout,
            "feature_dropout": self.feature_dropout,
        }


def _linear(in_features: int, out_features: int, seed: int) -> nn.Linear:
    """`nn.Linear` after a ReLU, with weights drawn from `seed` and not from the global generator."""
    if on_meta():
        return nn.Linear(in_features, out_features)
    layer = nn.utils.skip_init(nn.Linear, in_features, out_features)
    nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=torch.Generator().manual_seed(seed))
    nn.init.zeros_(layer.bias)
    return layer
