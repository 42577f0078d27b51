"""The codebooks: random vectors, orbits of a few, unit vectors, and stored ones. `labelspace` says what all can do."""

from torch import Tensor

from holobind._checks import integer
from holobind.errors import OptionError, ShapeError


def _one_vector(p: Tensor, dim: int) -> Tensor:
    if p.shape != (dim,):
        raise ShapeError(f"bound: wants one vector of {dim} elements, got shape {tuple(p.shape)}")
    return p.detach()


def _more(now: int, wanted: int) -> int:
    if integer("grown_to", "n_labels", wanted) < now:
        raise OptionError(f"grown_to: there are {now} labels already, and a codebook does not shrink to {wanted}")
    return wanted
