"""How many pairs one vector holds, predicted by the Gaussian model of crosstalk between unitary vectors.

A statement is the sum of n bound pairs. Unbinding a key gives the true vector plus n - 1 vectors that look random:
the crosstalk. The dot product of the result with a vector of norm 1 is therefore Gaussian:

    with the true vector     mean 1, variance (n - 1) / d
    with any other vector    mean 0, variance  n / d
"""

from collections.abc import Callable
from functools import cache
from math import sqrt
from typing import TYPE_CHECKING

from holobind._checks import positive
from holobind.errors import OptionError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_DIM_OR_PAIRS = 2**40  # the searches of `pairs_held` and `dimension_for` end here


def expected_error(d: int, n: int, distractors: int | None = None) -> float:
    """The expected fraction of wrong answers for n pairs in d dimensions.

        error = 1 - E[ Phi((1 + sqrt((n - 1) / d) u) / sqrt(n / d)) ^ distractors ]        u ~ N(0, 1)

    An answer is wrong if one of the `distractors`, the other vectors in the cleanup memory, is more similar than the
    true one. By default there are as many distractors as pairs, as in the paper's capacity experiment.
    """
    import numpy as np
    from scipy.special import log_ndtr

    positive("capacity", "d", d)
    positive("capacity", "n", n)
    others = n if distractors is None else positive("capacity", "distractors", distractors, minimum=0)
    points, weights = _quadrature()
    truth = 1 + sqrt((n - 1) / d) * points
    right = np.exp(others * log_ndtr(truth / sqrt(n / d)))
    return float(np.clip(1 - (weights * right).sum() / weights.sum(), 0, 1))


def pairs_held(d: int, error: float = 0.03, distractors: int | None = None) -> int:
    """The largest n with at most this fraction of wrong answers; 0 if one pair already exceeds it."""
    _check_fraction("pairs_held", error)
    return _largest(lambda n: expected_error(d, n, distractors) <= error)


def dimension_for(n: int, error: float = 0.03, distractors: int | None = None) -> int:
    """The smallest d at which n pairs have at most this fraction of wrong answers."""
    _check_fraction("dimension_for", error)
    return _largest(lambda d: expected_error(d, n, distractors) > error) + 1


@cache
def _quadrature() -> "tuple[NDArray[np.float64], NDArray[np.float64]]":
    """Points and weights of Gauss-Hermite quadrature, far more accurate than the Gaussian model itself."""
    from numpy.polynomial.hermite_e import hermegauss

    return hermegauss(80)


def _check_fraction(where: str, error: float) -> None:
    if not 0 < error < 1:
        raise OptionError(f"{where}: error must be a fraction between 0 and 1, got {error!r}")


def _largest(holds: Callable[[int], bool]) -> int:
    """The largest whole number for which `holds` is true, by bisection; 0 if it is false for 1.

    `holds` is true for all numbers up to the result and false for all larger ones.
    """
    high = 1
    while high < MAX_DIM_OR_PAIRS and holds(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
