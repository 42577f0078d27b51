from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.fft import irfft, rfft

from holobind import algebra
from holobind._checks import integer
from holobind.codebooks._checks import _more, _one_vector
from holobind.codebooks._philox import phases, signals
from holobind.codebooks.base import TILE, Codebook, first_largest, signal
from holobind.codebooks.ragged import portions, sum_sets
from holobind.errors import OptionError


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
        super().__init__(n_labels, dim, integer("OrbitCodebook", "seed", seed))
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
