"""A linear layer on the features of a text beside a network on its tokens ("wide and deep", Cheng et al. 2016)."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from holobind._checks import positive
from holobind.data.batches import TextBatch
from holobind.errors import OptionError
from holobind.networks.base import Network
from holobind.networks.cnn import XmlCnn
from holobind.networks.embedding import seeded
from holobind.networks.lstm import AttentionLstm
from holobind.networks.sparse_linear import SparseLinear

DEEP_NETWORKS: dict[str, type[Network]] = {network.kind: network for network in (XmlCnn, AttentionLstm)}


class WideAndDeep(Network):
    """The sum of a linear layer on tf-idf features and of a network on tokens.

        y = x W + h V + b              x: the features, h: the output of the deep network

    Parameters: `linear_skip.weight` (n_features, out_features), W; `output.weight`, `output.bias`, V and b; `deep.*`.

    W and V start at 0. Training sets W to the ridge regression, and V learns what is left; so the network is as
    accurate as a bag of words before its first step.

    deep   a network on tokens, or its config with its kind as "class"

    Shapes: TextBatch -> (rows, out_features)
    """

    kind = "wide_and_deep"
    reads_tokens = True

    def __init__(self, n_features: int, out_features: int, deep: "Network | Mapping[str, Any]") -> None:
        super().__init__()
        self.n_features = positive("WideAndDeep", "n_features", n_features)
        self.out_features = positive("WideAndDeep", "out_features", out_features)
        if isinstance(deep, Mapping):
            config = dict(deep)
            kind = config.pop("class", None)
            if kind not in DEEP_NETWORKS:
                raise OptionError(f"WideAndDeep: deep is one of {', '.join(DEEP_NETWORKS)}; got {str(kind)[:40]!r}")
            deep = DEEP_NETWORKS[kind](**config)
        self.linear_skip = SparseLinear(n_features, out_features)
        self.deep = deep
        with seeded(0):  # the global generator stays as it is
            self.output = nn.Linear(deep.out_features, out_features)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, inputs: TextBatch) -> Tensor:
        y: Tensor = self.output(self.deep(inputs.tokens))
        return y + self.linear_skip(inputs.features)

    @property
    def output_layers(self) -> list[nn.Module]:
        return [self.output, self.linear_skip]

    def linear_path(self) -> tuple[Tensor, Tensor] | None:
        return self.linear_skip.weight, self.output.bias

    def describe(self) -> str:
        return f"{self.deep.describe()}, and a linear layer on tf-idf features beside it"

    def config(self) -> dict[str, Any]:
        deep = {"class": self.deep.kind, **self.deep.config()}
        return {"n_features": self.n_features, "out_features": self.out_features, "deep": deep}
