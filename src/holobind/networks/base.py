"""What a network is and what it is given: batches, cut out of all examples by vectorised slicing.

Examples have a length, `batch(index)` for any rows in any order, and `sizes`, by which batches of similar rows can be
made, or None where that gains nothing.
"""

from typing import Any

from torch import nn


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
