"""How much one vector holds, by theory: the noise law of bound and summed unitary vectors.

A statement of n pairs answers a question with the true vector plus n - 1 others that look random. Its response to a
vector of length 1 is therefore Gaussian:

    to the true vector    mean 1, variance (n - 1) / d
    to any other          mean 0, variance  n / d
"""

from collections.abc import Callable
from functools import cache
from math import sqrt
from typing import TYPE_CHECKING

from holobind.errors import OptionError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST = 2**40


def capacity(d: int, n: int, distractors: int | None = None) -> float:
    """The expected share of wrong answers when n pairs share d numbers and the truth competes with `distractors`.

        error = 1 - E[ Phi((1 + sqrt((n - 1) / d) u) / sqrt(n / d)) ^ distractors ]        u ~ N(0, 1)

    By default there are as many distractors as pairs, as in the paper's capacity experiment.
    """
    import numpy as np
    from scipy.special import log_ndtr

    for name, value, least in (("d", d, 1), ("n", n, 1), ("distractors", distractors, 0)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise OptionError(f"capacity: {name} must be a whole number of at least {least}, got {value!r}")
    others = n if distractors is None else distractors
    points, weights = _quadrature()
    truth = 1 + sqrt((n - 1) / d) * points
    right = np.exp(others * log_ndtr(truth / sqrt(n / d)))
    return float(np.clip(1 - (weights * right).sum() / weights.sum(), 0, 1))


def pairs_held(d: int, error: float = 0.03, distractors: int | None = None) -> int:
    """The largest n with at most this share of wrong answers; 0 where even one pair has more."""
    _check_share(error)
    return _last(lambda n: capacity(d, n, distractors) <= error)


def dimension_for(n: int, error: float = 0.03, distractors: int | None = None) -> int:
    """The smallest d at which n pairs have at most this share of wrong answers."""
    _check_share(error)
    return _last(lambda d: capacity(d, n, distractors) > error) + 1


@cache
def _quadrature() -> "tuple[NDArray[np.float64], NDArray[np.float64]]":
    """Points and weights that integrate over a standard normal variable, to far more digits than the law has."""
    from numpy.polynomial.hermite_e import hermegauss

    return hermegauss(80)


def _check_share(error: float) -> None:
    if not 0 < error < 1:
        raise OptionError(f"error must be a share between 0 and 1, got {error!r}")


def _last(holds: Callable[[int], bool]) -> int:
    """The last whole number, from 1 on, of those for which `holds` is true: it is true up to a point."""
    high = 1
    while high < MOST and holds(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
