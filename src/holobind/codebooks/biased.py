from collections.abc import Iterator

from torch import Tensor, nn

from holobind.codebooks.base import Codebook
from holobind.codebooks.orbit import OrbitCodebook
from holobind.errors import ShapeError


class BiasedCodebook(Codebook):
    """Another codebook, with a number of its own added to each label's score: <v, c_i> + a_i.

    State: the other codebook's, and `shift` (L), the a_i. Vectors, sums and derivatives are the other's.
    """

    shift: Tensor

    def __init__(self, book: Codebook, shift: Tensor) -> None:
        super().__init__(book.n_labels, book.dim, book.seed)
        if shift.shape != (book.n_labels,):
            raise ShapeError(f"BiasedCodebook: wants {book.n_labels} numbers, one a label; got {tuple(shift.shape)}")
        self.book, self.grain, self.unitary, self.device = book, book.grain, book.unitary, book.device
        self.register_buffer("shift", shift)

    def _score(self, asked: Tensor, first: int, last: int) -> Tensor:
        found = self.book._score(asked, first, last)
        return found + self.shift[first:last] if found.requires_grad else found.add_(self.shift[first:last])

    def _ask(self, v: Tensor) -> Tensor:
        return self.book._ask(v)

    def _answer(self, total: Tensor) -> Tensor:
        return self.book._answer(total)

    def _mix(self, weights: Tensor, first: int, last: int) -> Tensor:
        return self.book._mix(weights, first, last)

    def _keep(self) -> None:
        self.book._keep()

    def _blocks(self, rows: int, memory: int, first: int, last: int) -> Iterator[tuple[slice, int, int]]:
        return self.book._blocks(rows, memory, first, last)

    def _top_k(self, v: Tensor, k: int, memory: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        if isinstance(self.book, OrbitCodebook):
            return self.book._top_k(v, k, memory, first, last, self.shift)
        return super()._top_k(v, k, memory, first, last)

    def _encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        return self.book._encode(labels, offsets, weights)

    def _vectors(self, ids: Tensor) -> Tensor:
        return self.book._vectors(ids)

    def bound(self, p: Tensor) -> Codebook:
        return BiasedCodebook(self.book.bound(p), self.shift)

    def grown_to(self, n_labels: int) -> Codebook:
        return BiasedCodebook(self.book.grown_to(n_labels), grown_shift(self.shift, n_labels))

    def learnable(self) -> Codebook:
        return BiasedCodebook(self.book.learnable(), self.shift)


def grown_shift(shift: Tensor, n_labels: int) -> Tensor:
    """The numbers that are added to more labels: a new one gets what the rarest of the others have.  (L) -> (more)"""
    return nn.functional.pad(shift, (0, n_labels - len(shift)), value=float(shift.min()))
