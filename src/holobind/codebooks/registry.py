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


DEFAULT_MAX_DIM = 1024


def default_dim(n_labels: int, max_dim: int = DEFAULT_MAX_DIM) -> int:
    """A dim for a codebook: the first number >= n_labels with no prime factors but 2, 3 and 5, at most `max_dim`.

    Up to `max_dim` labels, the label vectors of an orbit are orthonormal, and nothing is lost against one-versus-rest.
    """
    dim = min(n_labels, max_dim)
    while dim < max_dim and _without_factor(_without_factor(_without_factor(dim, 2), 3), 5) > 1:
        dim += 1
    return dim


def _without_factor(n: int, factor: int) -> int:
    while n > 1 and n % factor == 0:
        n //= factor
    return n


def make_codebook(where: str, name: str, n_labels: int, dim: int, seed: int) -> Codebook:
    """Draw the codebook of this name from the seed; `where` starts the message if there is none."""
    one_of(where, "codebook", name, tuple(CODEBOOKS))
    return CODEBOOKS[name](n_labels, dim, seed)
