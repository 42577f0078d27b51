"""Heads of every kind, for the tests of their common methods."""

import itertools

import pytest
from helpers.codebooks import normal

import holobind as hb

N, D, H = 37, 16, 5  # labels, dimensions of the output, features of the input
HOLOGRAPHIC = [
    {"codebook": codebook, "loss": loss}
    for codebook, loss in itertools.product(
        ["orbit", "random", "naive"], ["softmax", "query", "query-abs", "regression"]
    )
]
TRAINABLE = [
    {"codebook": codebook, "loss": "query", "trainable": trainable}
    for codebook in ("orbit", "random")
    for trainable in (("present",), ("present", "missing"), ("labels",), ("present", "missing", "labels"))
]
NAIVE_TRAINABLE = [  # nothing is projected
    {"codebook": "naive", "loss": loss, "trainable": ("present", "missing", "labels")}
    for loss in ("query", "query-abs")
]
SQUARES = [{"codebook": codebook, "loss": "squares"} for codebook in ("orbit", "random")]
HARD = [{"codebook": codebook, "loss": "query", "hard_negatives": 3} for codebook in ("orbit", "random")]
LINEAR = [{"loss": "bce"}, {"loss": "softmax"}]
WITH_PRIOR = [
    {"codebook": codebook, "loss": "softmax", "prior": True, "trainable": trainable}
    for codebook, trainable in (("orbit", ()), ("random", ()), ("orbit", ("labels",)), ("random", ("labels",)))
]

ALL_HEADS = [*HOLOGRAPHIC, *TRAINABLE, *NAIVE_TRAINABLE, *SQUARES, *HARD, *WITH_PRIOR, *LINEAR]
every_head = pytest.mark.parametrize("options", ALL_HEADS, ids=str)


def make_head(options, inputs=H, **others):
    """A head of N labels; options with a codebook make a holographic one."""
    options = options | others
    if options.pop("few", False):
        return hb.HolographicHead(inputs, N, 3 * N, **options)
    if "prior" in options:
        options = options | {"prior": normal(N, seed=3)}
    if "codebook" in options:
        return hb.HolographicHead(inputs, N, D, **options)
    return hb.LinearHead(inputs, N, **options)
