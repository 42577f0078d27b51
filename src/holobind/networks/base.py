"""The base class of networks: the body of a model, which turns a batch of inputs into one vector for each row."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from holobind._types import RowIndex
from holobind.data.batches import Examples


class Network(nn.Module):
    """The body of a model: `forward(batch) -> (rows, out_features)`.

    kind                 its name in a model file
    reads_tokens         whether it reads texts token by token; others read rows of features
    closed_form          whether it was solved, not trained: it has no parameters to train
    n_features           of a network on rows of features
    compressed_tensors   names of the tensors that a model file compresses
    """

    kind: ClassVar[str] = ""
    reads_tokens: ClassVar[bool] = False
    closed_form: ClassVar[bool] = False
    out_features: int
    n_features: int | None = None

    @property
    def compressed_tensors(self) -> tuple[str, ...]:
        return ()

    @property
    def output_layers(self) -> list[nn.Module]:
        """The layers whose sum is the output."""
        raise NotImplementedError

    def config(self) -> dict[str, Any]:
        """JSON values that, as keyword arguments of its class, build it again."""
        raise NotImplementedError

    def describe(self) -> str:
        """A short description."""
        return type(self).__name__

    def linear_path(self) -> tuple[Tensor, Tensor] | None:
        """W (f, d) and b (d) of a layer x W + b from features to output, where there is one."""
        return None

    def n_parameters(self) -> int:
        """The number of learned weights."""
        return sum(p.numel() for p in self.parameters())

    def prepare(self) -> Any:
        """Make what prediction needs besides tensors; called before several threads predict batches."""

    def release_tables(self) -> None:
        """Free what `prepare` made; the next prediction makes it again."""

    def predict_rows(self, examples: Examples, rows: RowIndex) -> Tensor:
        """The outputs of some rows of examples.  Shapes: -> (n, out_features)"""
        return self(examples.batch(rows).to(next(self.parameters(), torch.empty(0)).device))

    def added_scores(self, examples: Examples, rows: RowIndex) -> tuple[Tensor, Tensor] | None:
        """What is added to the head's scores of some labels, 0 or larger, and these labels, -1 for none.

        Shapes: -> (n, m), (n, m)
        """
        return None

    def free_labels(self) -> list[int]:
        """Ids whose labels were forgotten; none of them is ever predicted."""
        return []

    def working_bytes(self) -> int:
        """The memory, about, of tables that it builds for prediction; known from the sizes in a file's header alone."""
        return 0

    def check_loaded(self) -> None:
        """Raise an OptionError if tensors from a file, though of the right shapes, make no such network."""
