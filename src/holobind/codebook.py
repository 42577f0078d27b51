"""The codebooks: random vectors, orbits of a few, unit vectors, and stored ones. `labelspace` says what all can do."""

from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.fft import irfft, rfft

from holobind import algebra
from holobind.errors import OptionError, ShapeError
from holobind.labelspace import MEMORY, TILE, Codebook, first_largest, signal, spectrum
from holobind.philox import phases, signals
from holobind.ragged import lengths, portions, sum_sets

__all__ = ["Codebook", "DenseCodebook", "OrbitCodebook", "RandomCodebook", "ShiftedCodebook", "UnitCodebook"]


class RandomCodebook(Codebook):
    """The paper's independent unitary vectors, regenerated from (seed, label) whenever they are wanted.

    State: none; seed and sizes are all there is. Only a softmax that is being trained, which asks for every label in
    each step, keeps their phases, where these fit into MEMORY; `eval()` lets go of them.

    A unitary vector is a random phase at each frequency, and +1 or -1 at the two without a mirror. The paper
    projects Gaussian vectors, whose phases are independent and uniform: drawing them directly is the same law
    and needs no transform. Sums and dot products are taken in the frequency domain (Parseval: with w[k] = 1 at the
    frequencies without a mirror and 2 at the others, <v, c> = sum_k w[k] Re(conj(V[k]) C[k]) / d), so that no
    label needs one either.
    """

    def __init__(self, n_labels: int, dim: int, seed: int = 0, *, key: Tensor | None = None) -> None:
        super().__init__(n_labels, dim, algebra._integer("RandomCodebook", "seed", seed))
        self._key = key  # the spectrum of what the labels are bound with
        self._kept: Tensor | None = None

    def _ask(self, v: Tensor) -> Tensor:
        asked = spectrum(v) if self._key is None else spectrum(v) * self._key.conj()
        asked *= 2 / self.dim
        asked[:, 0] /= 2
        if self.dim % 2 == 0:
            asked[:, -1] /= 2
        return torch.view_as_real(asked).flatten(1)

    def _answer(self, total: Tensor) -> Tensor:
        mixed = torch.view_as_complex(total.unflatten(1, (-1, 2)))
        return signal(mixed if self._key is None else mixed * self._key, self.dim)

    def _score(self, asked: Tensor, first: int, last: int) -> Tensor:
        return asked @ self._range(first, last).to(asked.dtype).T

    def _mix(self, weights: Tensor, first: int, last: int) -> Tensor:
        return weights @ self._range(first, last).to(weights.dtype)

    def _range(self, first: int, last: int) -> Tensor:
        """The phases of labels from `first` up to `last`.  Shapes: -> (last - first, 2 (d // 2 + 1))"""
        if self._kept is not None:
            return self._kept[first:last]
        return self._phases(torch.arange(first, last, device=self.device)).flatten(1)

    def _keep(self) -> None:
        if self.training and self._kept is None and 4 * self.n_labels * (self.dim + 2) <= MEMORY:
            tiles = self._blocks(1, MEMORY, 0, self.n_labels)  # drawing takes several times the memory
            self._kept = torch.cat([self._range(first, last) for _, first, last in tiles])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": None}  # copies draw their own

    def train(self, mode: bool = True) -> Self:
        if not mode:
            self._kept = None
        return super().train(mode)

    def _blocks(self, rows: int, memory: int, first: int, last: int) -> Iterator[tuple[slice, int, int]]:
        # All rows at once: what costs is to draw a label's phases.
        size = max(1, min(TILE // self.dim, memory // (4 * (rows + 8 * self.dim))))
        for start in range(first, last, size):
            yield slice(0, rows), start, min(start + size, last)

    def _encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        most = max(1, TILE // self.dim)
        parts = portions(labels, offsets, weights, most)
        sums = [sum_sets(self._phases(part).flatten(1), at, by) for part, at, by in parts]
        return self._answer(torch.cat(sums))

    def _vectors(self, ids: Tensor) -> Tensor:
        drawn = signals(torch.view_as_complex(self._phases(ids)), self.dim)
        return drawn if self._key is None else algebra.bind(drawn, irfft(self._key, n=self.dim))

    def _phases(self, ids: Tensor) -> Tensor:
        assert self.seed is not None
        return phases(self.seed, ids, self.dim)

    def bound(self, p: Tensor) -> Codebook:
        key = rfft(_one_vector(p, self.dim).to(self.device))
        return self._like(self.n_labels, key if self._key is None else self._key * key)

    def grown_to(self, n_labels: int) -> Codebook:
        return self._like(_more(self.n_labels, n_labels), self._key)

    def learnable(self) -> Codebook:
        return DenseCodebook(self.vectors(torch.arange(self.n_labels)), learn=True)

    def _like(self, n_labels: int, key: Tensor | None) -> "RandomCodebook":
        assert self.seed is not None
        return RandomCodebook(n_labels, self.dim, self.seed, key=key).to(self.device)

    def _move(self) -> None:
        self._kept = None
        self._key = None if self._key is None else self._key.to(self.device)


class OrbitCodebook(Codebook):
    """Label i is base vector i // d rolled by i % d: all labels are scored by one short transform for each base.

    State: `_readers` (bases, d // 2 + 1), the conjugate spectra of ceil(L / d) unitary bases drawn as in
    `RandomCodebook`: L floats in place of L x d.

        <v, roll(b, j)> = sum_i v[i] b[i - j] = irfft(rfft(v) conj(rfft(b)))[j]          for all j at once
        sum_j w[j] roll(b, j) = irfft(rfft(w) rfft(b))

    A roll is binding with a shifted delta, so rolls of a unitary vector are unitary; two rolls of one base are
    orthogonal, as sum_i b[i - j] b[i - l] = irfft(|rfft(b)|^2)[j - l] and every |rfft(b)| is 1; rolls of two
    bases are to each other like random unitary vectors.
    """

    def __init__(self, n_labels: int, dim: int, seed: int = 0, *, key: Tensor | None = None) -> None:
        super().__init__(n_labels, dim, algebra._integer("OrbitCodebook", "seed", seed))
        self.grain = self.dim  # the rolls of a base are scored together
        self.n_bases = -(-self.n_labels // self.dim)
        drawn = torch.view_as_complex(phases(seed, torch.arange(self.n_bases), self.dim))
        self._key = key
        self._readers = (drawn if key is None else drawn * key.cpu()).conj().resolve_conj()
        self._rings: Tensor | None = None
        self.bases: nn.Parameter | None = None

    def _conjugates(self) -> Tensor:
        if self.bases is None:
            return self._readers
        return rfft(algebra.unitary(self.bases)).conj()

    def _score(self, asked: Tensor, first: int, last: int) -> Tensor:
        product = asked[:, None] * self._conjugates()[first // self.dim : -(-last // self.dim)]
        return signal(product, self.dim).flatten(1)[:, : last - first]

    def _mix(self, weights: Tensor, first: int, last: int) -> Tensor:
        bases = self._conjugates()[first // self.dim : -(-last // self.dim)].conj()
        room = len(bases) * self.dim - weights.shape[1]
        padded = nn.functional.pad(weights, (0, room)) if room else weights
        spectra = rfft(padded.unflatten(1, (-1, self.dim)))
        return (spectra.mul_(bases) if self.bases is None else spectra * bases).sum(1)

    def _blocks(self, rows: int, memory: int, first: int, last: int) -> Iterator[tuple[slice, int, int]]:
        height, width = self._tile(rows, memory)
        for top in range(0, rows, height):
            for start in range(first, last, width * self.dim):
                yield slice(top, min(top + height, rows)), start, min(start + width * self.dim, last)

    def _tile(self, rows: int, memory: int) -> tuple[int, int]:
        """How many rows and how many bases to score at once: 12 bytes a score, with the products' spectra.

        Where a tile has room for all bases of more than 16 rows it takes more rows: few labels are then scored in
        few operations.
        """
        transforms = max(1, min(TILE, memory // 12) // self.dim)
        height = max(1, min(rows, max(16, transforms // self.n_bases), transforms))
        return height, max(1, min(self.n_bases, transforms // height))

    def _top_k(
        self, v: Tensor, k: int, memory: int, first: int, last: int, shift: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Only the k bases with the largest maxima can hold a row's top k, so no other is looked at twice.

        shift   what is added to each label's score (L)

        Let t be the k-th largest of a row's maxima over bases. The k bases chosen (among equals the lower) hold
        at least k scores >= t. Any other base has scores <= t, and those that equal t stand behind k labels that
        score as much or more and, where as much, are in lower bases, that is, have lower numbers.
        """
        asked, d = self._ask(v), self.dim
        readers = self._conjugates()[first // d : -(-last // d)]
        n_bases = len(readers)
        height, width = self._tile(len(v), memory)
        width, chosen = min(width, n_bases), min(k, n_bases)
        height = max(1, min(height, memory // (24 * chosen * d)))  # the second look, at the chosen bases
        tail = last - first - (n_bases - 1) * d
        added = None if shift is None else nn.functional.pad(shift[first:last].to(v), (0, d - tail)).view(n_bases, d)
        best = v.new_empty(len(v), k)
        ids = torch.empty(len(v), k, dtype=torch.long, device=v.device)
        # Two tensors of a tile that come and go in turn make malloc give pages back to the system and fetch them
        # again, which doubled the time. One is therefore kept, and the other gone before its successor is made.
        room = asked.new_empty(height, width, asked.shape[1])
        for top in range(0, len(v), height):
            part = asked[top : top + height, None]
            maxima = v.new_empty(len(part), n_bases)
            for start in range(0, n_bases, width):
                some = readers[start : start + width]
                product = torch.mul(part, some, out=room[: len(part), : len(some)])
                scored = irfft(product, n=d)
                if added is not None:
                    scored += added[start : start + width]
                if start + width >= n_bases:
                    scored[:, -1, tail:] = -torch.inf
                if chosen < n_bases or width < n_bases:
                    torch.amax(scored, -1, out=maxima[:, start : start + width])
                if width < n_bases:
                    del scored
            if chosen == n_bases <= width:  # all of them are looked at
                bases = torch.arange(n_bases, device=v.device).expand(len(part), n_bases)
            else:
                bases = first_largest(maxima, chosen)[1].sort(1).values
            if width < n_bases:
                scored = irfft(part * readers[bases], n=d)
                if added is not None:
                    scored += added[bases]
                scored[:, -1, tail:].masked_fill_(bases[:, -1:] == n_bases - 1, -torch.inf)
            elif chosen < n_bases:
                rows = torch.arange(len(part), device=v.device)[:, None] * n_bases
                scored = scored.flatten(0, 1).index_select(0, (bases + rows).flatten())
            found, where = first_largest(scored.view(len(part), chosen * d), k)
            del scored
            best[top : top + height] = found
            ids[top : top + height] = bases.gather(1, where // d) * d + where % d + first
        return best, ids

    def _encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        if self.bases is not None:
            return sum_sets(self._vectors(labels), offsets, weights)
        most = max(1, TILE // self.dim)
        sums = [sum_sets(self._vectors(part), at, by) for part, at, by in portions(labels, offsets, weights, most)]
        return torch.cat(sums) if len(sums) > 1 else sums[0]

    def _vectors(self, ids: Tensor) -> Tensor:
        starts = self.starts(ids)
        if self.bases is not None:
            ring = irfft(self._conjugates().conj(), n=self.dim).repeat(1, 2).flatten()
            return ring[starts[:, None] + torch.arange(self.dim, device=starts.device)]
        rings = self.rings()
        return rings.as_strided((rings.numel() - self.dim + 1, self.dim), (1, 1)).index_select(0, starts)

    def rings(self) -> Tensor:
        """Each base twice in a row, so that every roll of it is a slice, which starts at `starts`.

        Made when first used, and kept: training wants it, searching does not.

        Shapes: -> (bases * 2 d)
        """
        if self._rings is None:
            self._rings = signals(self._readers.conj(), self.dim).repeat(1, 2).flatten()
        return self._rings

    def starts(self, ids: Tensor) -> Tensor:
        """Where in the rings the vectors of labels start."""
        return ids // self.dim * (3 * self.dim) + self.dim - ids

    def bound(self, p: Tensor) -> Codebook:
        if self.bases is not None:
            raise OptionError("bound: the vectors are learned and change; bind their sums instead")
        key = rfft(_one_vector(p, self.dim).to(self.device))
        return self._like(self.n_labels, key if self._key is None else self._key * key)

    def grown_to(self, n_labels: int) -> Codebook:
        grown = self._like(_more(self.n_labels, n_labels), self._key)
        if self.bases is None:
            return grown
        grown = grown.learnable()
        assert grown.bases is not None
        grown.bases.data[: self.n_bases] = self.bases.data
        return grown

    def learnable(self) -> "OrbitCodebook":
        copy = self._like(self.n_labels, self._key)
        copy.bases = nn.Parameter(irfft(copy._readers.conj(), n=self.dim))
        return copy

    def _like(self, n_labels: int, key: Tensor | None) -> "OrbitCodebook":
        assert self.seed is not None
        return OrbitCodebook(n_labels, self.dim, self.seed, key=key).to(self.device)

    def _move(self) -> None:
        self._readers = self._readers.to(self.device)
        self._rings = None
        self._key = None if self._key is None else self._key.to(self.device)


class UnitCodebook(Codebook):
    """Label i is the i-th unit vector: the orbit of the identity of binding, for no more labels than d.

    State: none. Where an orbit has one base it may as well be this one, for a network that gives the output itself:
    any other is only a turn of it. Scores are then elements of the output, and no transform is left.
    """

    def __init__(self, n_labels: int, dim: int) -> None:
        super().__init__(n_labels, dim, None)
        if self.n_labels > self.dim:
            raise OptionError(
                f"UnitCodebook: dim {dim} has unit vectors for {dim} labels; got {n_labels}, take an orbit"
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
        return UnitCodebook(_more(self.n_labels, n_labels), self.dim).to(self.device)

    def learnable(self) -> Codebook:
        return DenseCodebook(self.vectors(torch.arange(self.n_labels)), learn=True)


class ShiftedCodebook(Codebook):
    """Another codebook, with a number of its own added to each label's score: <v, c_i> + a_i.

    State: the other codebook's, and `shift` (L), the a_i. Vectors, sums and derivatives are the other's.
    """

    shift: Tensor

    def __init__(self, book: Codebook, shift: Tensor) -> None:
        super().__init__(book.n_labels, book.dim, book.seed)
        if shift.shape != (book.n_labels,):
            raise ShapeError(f"ShiftedCodebook: wants {book.n_labels} numbers, one a label; got {tuple(shift.shape)}")
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
        return ShiftedCodebook(self.book.bound(p), self.shift)

    def grown_to(self, n_labels: int) -> Codebook:
        return ShiftedCodebook(self.book.grown_to(n_labels), grown_shift(self.shift, n_labels))

    def learnable(self) -> Codebook:
        return ShiftedCodebook(self.book.learnable(), self.shift)


def grown_shift(shift: Tensor, n_labels: int) -> Tensor:
    """The numbers that are added to more labels: a new one gets what the rarest of the others have.  (L) -> (more)"""
    return nn.functional.pad(shift, (0, n_labels - len(shift)), value=float(shift.min()))


class DenseCodebook(Codebook):
    """Vectors that are stored: any you like, the paper's learned ones, or its naive ones that must fail.

    State: `table` (L, d), a parameter if `learn`, and then used only after projection, which keeps the vectors
    unitary after every step. Without `learn` the vectors are taken as they are.
    """

    def __init__(self, vectors: Tensor, *, learn: bool = False) -> None:
        if vectors.ndim != 2:
            raise ShapeError(f"DenseCodebook: wants vectors of shape (labels, d), got {tuple(vectors.shape)}")
        super().__init__(len(vectors), vectors.shape[1], None)
        self.device = vectors.device
        self.table = nn.Parameter(vectors.detach().clone(), requires_grad=learn)
        with torch.no_grad():
            self.unitary = learn or bool(torch.allclose(algebra.unitary(vectors), vectors, atol=1e-4))

    @classmethod
    def naive(cls, n_labels: int, dim: int, seed: int = 0) -> "DenseCodebook":
        """Gaussian vectors without the paper's projection, for the ablation."""
        return cls(algebra.random(n_labels, dim, torch.Generator().manual_seed(seed)))

    def _all(self) -> Tensor:
        return algebra.unitary(self.table) if self.learned else self.table

    def _ask(self, v: Tensor) -> Tensor:
        return v

    def _answer(self, total: Tensor) -> Tensor:
        return total

    def _score(self, asked: Tensor, first: int, last: int) -> Tensor:
        return asked @ self._all()[first:last].to(asked.dtype).T

    def _mix(self, weights: Tensor, first: int, last: int) -> Tensor:
        return weights @ self._all()[first:last].to(weights.dtype)

    def _blocks(self, rows: int, memory: int, first: int, last: int) -> Iterator[tuple[slice, int, int]]:
        size = max(1, min(memory // (8 * rows), self.n_labels))
        for start in range(first, last, size):
            yield slice(0, rows), start, min(start + size, last)

    def _encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        return nn.functional.embedding_bag(labels, self._all(), offsets, mode="sum", per_sample_weights=weights)

    def _vectors(self, ids: Tensor) -> Tensor:
        return self._all()[ids]

    def bound(self, p: Tensor) -> Codebook:
        if self.learned:
            raise OptionError("bound: the vectors are learned and change; bind their sums instead")
        return DenseCodebook(algebra.bind(self.table, _one_vector(p, self.dim).to(self.table)))

    def grown_to(self, n_labels: int) -> Codebook:
        raise OptionError("grown_to: stored vectors do not say what a new label's would be; append it to the table")

    def learnable(self) -> Codebook:
        return DenseCodebook(self.table, learn=True)


def _one_vector(p: Tensor, dim: int) -> Tensor:
    if p.shape != (dim,):
        raise ShapeError(f"bound: wants one vector of {dim} elements, got shape {tuple(p.shape)}")
    return p.detach()


def _more(now: int, wanted: int) -> int:
    if algebra._integer("grown_to", "n_labels", wanted) < now:
        raise OptionError(f"grown_to: there are {now} labels already, and a codebook does not shrink to {wanted}")
    return wanted
