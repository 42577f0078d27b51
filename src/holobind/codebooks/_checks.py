"""Checks of the arguments of `Codebook.bind` and `Codebook.expand_to`."""

from torch import Tensor

from holobind._checks import integer
from holobind.errors import OptionError, ShapeError


def checked_key(p: Tensor, dim: int) -> Tensor:
    """The key without its gradient, if it is one vector of `dim` elements."""
    if p.shape != (dim,):
        raise ShapeError(f"bind: wants one vector of {dim} elements, got shape {tuple(p.shape)}")
    return p.detach()


def checked_expansion(current: int, n_labels: int) -> int:
    """The new number of labels, if it is no smaller than the current one."""
    if integer("expand_to", "n_labels", n_labels) < current:
        raise OptionError(
            f"expand_to: there are {current} labels already, and a codebook does not shrink to {n_labels}"
        )
    return n_labels
