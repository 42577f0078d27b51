from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.fft import rfft

from holobind.codebooks._checks import _more, _one_vector
from holobind.codebooks.base import Codebook, first_largest
from holobind.codebooks.orbit import OrbitCodebook
from holobind.codebooks.ragged import lengths
from holobind.codebooks.stored import DenseCodebook
from holobind.errors import OptionError


class OneHotCodebook(Codebook):
    """Label i is the i-th unit vector: the orbit of the identity of binding, for no more labels than d.

    State: none. Where an orbit has one base it may as well be this one, for a network that gives the output itself:
    any other is only a turn of it. Scores are then elements of the output, and no transform is left.
    """

    def __init__(self, n_labels: int, dim: int) -> None:
        super().__init__(n_labels, dim, None)
        if self.n_labels > self.dim:
            raise OptionError(
                f"OneHotCodebook: dim {dim} has unit vectors for {dim} labels; got {n_labels}, take an orbit"
            )

    def _ask(self, v: Tensor) -> Tensor:
        return v

    def _answer(self, total: Tensor) -> Tensor:
        return total

    def _score(self, asked: Tensor, first: int, last: int) -> Tensor:
        return asked[:, first:last].clone(memory_format=torch.contiguous_format)  # the caller may write into it

    def _mix(self, weights: Tensor, first: int, last: int) -> Tensor:
        return nn.functional.pad(weights, (first, self.dim - last))

    def _blocks(self, rows: int, memory: int, first: int, last: int) -> Iterator[tuple[slice, int, int]]:
        height = max(1, memory // (8 * self.dim))
        for top in range(0, rows, height):
            yield slice(top, min(top + height, rows)), first, last

    def _top_k(self, v: Tensor, k: int, memory: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        found, where = first_largest(v[:, first:last].contiguous(), k)
        return found, where + first

    def _encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        row = torch.arange(len(offsets), device=self.device).repeat_interleave(lengths(labels, offsets))
        by = torch.ones(len(labels), device=self.device) if weights is None else weights
        return by.new_zeros(len(offsets), self.dim).index_put_((row, labels), by, accumulate=True)

    def _vectors(self, ids: Tensor) -> Tensor:
        return nn.functional.one_hot(ids, self.dim).float()

    def bound(self, p: Tensor) -> Codebook:
        # An orbit whose base is p: the key takes the base back that it would draw.
        key = rfft(_one_vector(p, self.dim).cpu()) * OrbitCodebook(1, self.dim)._readers[0]
        return OrbitCodebook(self.n_labels, self.dim, key=key).to(self.device)

    def grown_to(self, n_labels: int) -> Codebook:
        return OneHotCodebook(_more(self.n_labels, n_labels), self.dim).to(self.device)

    def learnable(self) -> Codebook:
        return DenseCodebook(self.vectors(torch.arange(self.n_labels)), trainable=True)
