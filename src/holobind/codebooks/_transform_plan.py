"""The passes of a transform of length d: radices, order of the results, twiddle factors.

d = r_1 r_2 ... r_n: a pass of radix r_1 makes r_1 transforms of length d / r_1, and so on.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

RADICES = (8, 5, 4, 3, 2)


@lru_cache
def radices(d: int) -> tuple[int, ...] | None:
    """The radices of the passes of a transform, largest first, or None if there is no plan for this d."""
    found = []
    for radix in RADICES:
        while d % radix == 0:
            found.append(radix)
            d //= radix
    return tuple(found) if d == 1 and len(found) > 1 else None


def strides(plan: tuple[int, ...]) -> list[int]:
    """The distance of the elements that each pass combines."""
    return [math.prod(plan[level + 1 :]) for level in range(len(plan))]


@lru_cache
def roll_of_position(plan: tuple[int, ...]) -> NDArray[np.int64]:
    """The element of the inverse transform that is found at each position.  Shapes: -> (d)"""
    position, roll, factor = np.arange(math.prod(plan)), np.zeros(math.prod(plan), np.int64), 1
    for radix, stride in zip(plan, strides(plan), strict=True):
        roll += position // stride * factor
        position, factor = position % stride, factor * radix
    return roll


@lru_cache
def twiddle_factors(plan: tuple[int, ...]) -> NDArray[np.float32]:
    """exp(2 pi i p q / n) of all passes but the last, in the order in which they are used; n is the pass's length."""
    tables = []
    for radix, stride in zip(plan[:-1], strides(plan), strict=False):
        turns = np.outer(np.arange(stride), np.arange(1, radix)) / (radix * stride)
        tables.append(np.stack([np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)], -1).ravel())
    return np.concatenate(tables).astype(np.float32)
