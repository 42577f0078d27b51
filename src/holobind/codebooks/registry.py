"""Codebooks by name, as options and model files name them."""

from collections.abc import Callable

from holobind._checks import one_of
from holobind.codebooks.base import Codebook
from holobind.codebooks.dense import DenseCodebook
from holobind.codebooks.one_hot import OneHotCodebook
from holobind.codebooks.orbit import OrbitCodebook
from holobind.codebooks.random import RandomCodebook

CODEBOOKS: dict[str, Callable[[int, int, int], Codebook]] = {
    "orbit": OrbitCodebook,
    "random": RandomCodebook,
    "one_hot": lambda n_labels, dim, _: OneHotCodebook(n_labels, dim),
    "naive": DenseCodebook.naive,
}


def make_codebook(where: str, name: str, n_labels: int, dim: int, seed: int) -> Codebook:
    """Draw the codebook of this name from the seed; `where` starts the message if there is none."""
    one_of(where, "codebook", name, tuple(CODEBOOKS))
    return CODEBOOKS[name](n_labels, dim, seed)
