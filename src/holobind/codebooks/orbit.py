"""Label vectors that are rolls of a few random vectors: all labels are scored by short transforms."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.fft import irfft, rfft

from holobind import algebra
from holobind._checks import integer
from holobind._types import FloatArray
from holobind.algebra import irfft_rows, rfft_rows
from holobind.codebooks import _limits as limits
from holobind.codebooks._checks import checked_expansion, checked_key
from holobind.codebooks._philox import phases, reproducible_irfft
from holobind.codebooks._tracing import drawn_on, has_values
from holobind.codebooks.base import Codebook
from holobind.codebooks.ragged import checked_labels, set_chunks, sum_sets
from holobind.codebooks.ranking import stable_topk
from holobind.errors import OptionError

# Rows for which the top k is compiled (`_orbit_top_k`): of the default number of dimensions, and not a few of them.
COMPILED_DIM, MIN_COMPILED_ROWS, MAX_COMPILED_K = 1024, 16, 128
MAX_COMPILED_VALUE = 1e30  # of an element of a row: its scores are finite


class OrbitCodebook(Codebook):
    """Label i is base vector i // d rolled by i % d: one short transform for each base scores all labels.

    State: `_drawn_conj_spectra` (bases, d // 2 + 1), the conjugate spectra of ceil(L / d) unitary bases drawn as in
    `RandomCodebook`: L floats in place of L x d. A trainable codebook has the parameter `bases` (bases, d) instead.

        <v, roll(b, j)> = sum_i v[i] b[i - j] = irfft(rfft(v) conj(rfft(b)))[j]          for all j at once
        sum_j w[j] roll(b, j) = irfft(rfft(w) rfft(b))

    A roll is binding with a shifted delta, so rolls of a unitary vector are unitary; two rolls of one base are
    orthogonal, as sum_i b[i - j] b[i - l] = irfft(|rfft(b)|^2)[j - l] and every |rfft(b)| is 1; rolls of two
    bases are to each other like random unitary vectors.
    """

    kind: ClassVar[str] = "orbit"

    def __init__(self, n_labels: int, dim: int, seed: int = 0, *, key: Tensor | None = None) -> None:
        super().__init__(n_labels, dim, integer("OrbitCodebook", "seed", seed), stored=key is None)
        self.range_step = self.dim  # the rolls of a base are scored together
        self.n_bases = -(-self.n_labels // self.dim)
        drawn = torch.view_as_complex(phases(seed, torch.arange(self.n_bases, device="cpu"), self.dim))
        self._key = key = None if key is None else key.cpu()  # the spectrum of the vector bound to every label
        # Never on the meta device: a loader that gives the module storage does not draw these again.
        self._drawn_conj_spectra = (drawn if key is None else drawn * key).conj().resolve_conj()
        self._doubled_bases: Tensor | None = None
        self._pair_spectra: tuple[FloatArray, FloatArray] | None = None  # of all bases, for the compiled top k
        self.bases: nn.Parameter | None = None

    def _conj_spectra(self) -> Tensor:
        if self.bases is not None:
            return rfft(algebra.unitary(self.bases)).conj()
        return drawn_on(self, "_drawn_conj_spectra", self.device)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bases is not None:
            with torch.no_grad():
                self.bases.copy_(irfft(self._drawn_conj_spectra.conj(), n=self.dim))

    def _score_block(self, query: Tensor, first: int, last: int) -> Tensor:
        product = query[:, None] * self._conj_spectra()[first // self.dim : -(-last // self.dim)]
        return irfft_rows(product, self.dim).flatten(1)[:, : last - first]

    def _sum_block(self, weights: Tensor, first: int, last: int) -> Tensor:
        bases = self._conj_spectra()[first // self.dim : -(-last // self.dim)].conj()
        padding = len(bases) * self.dim - weights.shape[1]
        padded = nn.functional.pad(weights, (0, padding)) if padding else weights
        spectra = rfft_rows(padded.unflatten(1, (-1, self.dim)))
        in_place = self.bases is None and has_values(spectra)
        return (spectra.mul_(bases) if in_place else spectra * bases).sum(1)

    def _blocks(self, rows: int, max_bytes: int, first: int, last: int) -> Iterator[tuple[slice, int, int]]:
        height, width = self._block_shape(rows, max_bytes)
        for top in range(0, rows, height):
            for start in range(first, last, width * self.dim):
                yield slice(top, min(top + height, rows)), start, min(start + width * self.dim, last)

    def _block_shape(self, rows: int, max_bytes: int) -> tuple[int, int]:
        """How many rows and how many bases a block has: 12 bytes for each score, with the spectra of the products.

        Where a block has room for all bases of more than 16 rows it takes more rows, so that few labels are scored in
        few operations.
        """
        transforms = max(1, min(limits.MAX_BLOCK_SCORES, max_bytes // 12) // self.dim)
        height = max(1, min(rows, max(16, transforms // self.n_bases), transforms))
        return height, max(1, min(self.n_bases, transforms // height))

    def _compiled_log_sum_exp(self, v: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor] | None:
        enough = len(v) >= limits.MIN_ROWS_FOR_COMPILED_SOFTMAX and len(v) * self.n_labels >= (
            limits.MIN_SCORES_FOR_COMPILED_SOFTMAX
        )
        on_cpu = self.device.type == "cpu" and v.is_cpu and v.dtype == torch.float32
        if not enough or not on_cpu or self.bases is not None:
            return None
        from holobind.codebooks._orbit_softmax import log_sum_exp_and_mean

        return log_sum_exp_and_mean(v, self._conj_spectra(), self.n_labels, bias)

    def _top_k(
        self,
        v: Tensor,
        k: int,
        max_bytes: int,
        first: int,
        last: int,
        *,
        bias: Tensor | None = None,
        absolute: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Only the k bases with the largest maxima can hold a row's top k, so only these are searched.

        bias       added to each label's score (L)
        absolute   rank by the absolute value of the dot product

        Let t be the k-th largest of a row's maxima over bases. The k bases chosen (lower bases among ties) hold
        at least k scores >= t. Any other base has scores <= t, and those that equal t rank behind k labels that
        score higher, or score the same and are in lower bases, that is, have lower ids.
        """
        if bias is None and not absolute and self._has_compiled_top_k(v, k, max_bytes):
            none = v.new_zeros(len(v), 0)
            return self._compiled_top_k(v, k, none, none.long(), first, last)
        query, d = self._to_query(v), self.dim
        spectra = self._conj_spectra()[first // d : -(-last // d)]
        n_bases = len(spectra)
        height, width = self._block_shape(len(v), max_bytes)
        width, n_chosen = min(width, n_bases), min(k, n_bases)
        height = max(1, min(height, max_bytes // (24 * n_chosen * d)))  # for the scores of the chosen bases
        in_last_base = last - first - (n_bases - 1) * d  # labels of the last base; its other rolls are no labels
        base_bias = None
        if bias is not None:
            base_bias = nn.functional.pad(bias[first:last].to(v), (0, d - in_last_base)).view(n_bases, d)
        best = v.new_empty(len(v), k)
        ids = torch.empty(len(v), k, dtype=torch.long, device=v.device)
        # Two tensors of a block's size that are allocated and freed in turn make malloc return pages to the system
        # and fetch them again, which doubled the time. So one is kept, and the other is freed before the next one.
        buffer = query.new_empty(height, width, query.shape[1])
        for top in range(0, len(v), height):
            rows = query[top : top + height, None]
            maxima = v.new_empty(len(rows), n_bases)
            for start in range(0, n_bases, width):
                block = spectra[start : start + width]
                product = torch.mul(rows, block, out=buffer[: len(rows), : len(block)])
                scores = irfft(product, n=d)
                if absolute:
                    scores.abs_()
                if base_bias is not None:
                    scores += base_bias[start : start + width]
                if start + width >= n_bases:
                    scores[:, -1, in_last_base:] = -torch.inf
                if n_chosen < n_bases or width < n_bases:
                    torch.amax(scores, -1, out=maxima[:, start : start + width])
                if width < n_bases:
                    del scores
            if n_chosen == n_bases <= width:  # all bases are searched
                bases = torch.arange(n_bases, device=v.device).expand(len(rows), n_bases)
            else:
                bases = stable_topk(maxima, n_chosen)[1].sort(1).values
            if width < n_bases:
                scores = irfft(rows * spectra[bases], n=d)
                if absolute:
                    scores.abs_()
                if base_bias is not None:
                    scores += base_bias[bases]
                scores[:, -1, in_last_base:].masked_fill_(bases[:, -1:] == n_bases - 1, -torch.inf)
            elif n_chosen < n_bases:
                row_starts = torch.arange(len(rows), device=v.device)[:, None] * n_bases
                scores = scores.flatten(0, 1).index_select(0, (bases + row_starts).flatten())
            values, where = stable_topk(scores.view(len(rows), n_chosen * d), k)
            del scores
            best[top : top + height] = values
            ids[top : top + height] = bases.gather(1, where // d) * d + where % d + first
        return best, ids

    def _has_compiled_top_k(self, v: Tensor, k: int, max_bytes: int = limits.MAX_SCORE_BYTES) -> bool:
        """Whether `_compiled_top_k` takes these rows: many rows of float32, and sizes that models have by default.

        A row may have scores that differ in the last bits from those that it has alone: fewer rows go the other way.
        """
        on_cpu = self.device.type == "cpu" and v.is_cpu and v.dtype == torch.float32 and self.bases is None
        few_labels = self.n_labels < COMPILED_DIM or k > MAX_COMPILED_K
        if not on_cpu or self.dim != COMPILED_DIM or few_labels or len(v) < MIN_COMPILED_ROWS or max_bytes < 1 << 20:
            return False
        return has_values(v) and bool(v.detach().abs().amax() < MAX_COMPILED_VALUE)  # False with a NaN, too

    def _compiled_top_k(
        self, v: Tensor, k: int, values: Tensor, labels: Tensor, first: int, last: int
    ) -> tuple[Tensor, Tensor]:
        """The top k of the labels from `first` up to `last`, with values added to the scores of some labels.

        Shapes: (rows, d), 2 x (rows, m) with ascending labels -> (rows, k), (rows, k)
        """
        from holobind.codebooks._orbit_top_k import orbit_top_k, pair_spectra  # compiles when first used

        if (first, last) != (0, self.n_labels):
            spectra = pair_spectra(self._conj_spectra()[first // self.dim : -(-last // self.dim)])
        else:
            spectra = self._pair_spectra = self._pair_spectra or pair_spectra(self._conj_spectra())
        added = values.detach().float().numpy(), (labels - first).numpy()
        best, ids = orbit_top_k(self._to_query(v.detach()), spectra, last - first, k, *added)
        return best, ids + first

    @torch.no_grad()
    def raised_top_k(
        self, v: Tensor, k: int, values: Tensor, labels: Tensor, *, only: tuple[int, int] | None = None
    ) -> tuple[Tensor, Tensor] | None:
        first, last = only or (0, self.n_labels)
        fits = v.ndim == 2 and v.shape[1] == self.dim and 1 <= k <= self.n_labels and first % self.dim == 0
        fits = fits and labels.is_cpu and labels.ndim == 2 and labels.shape == values.shape and len(labels) == len(v)
        fits = fits and bool((values.detach().abs() < MAX_COMPILED_VALUE).all())
        if not (fits and 0 <= first < last <= self.n_labels and self._has_compiled_top_k(v, k)):
            return None  # `top_k` raises errors
        self._verify()
        k = min(k, last - first)
        return self._compiled_top_k(v, k, values, labels, first, last)

    def scores_of(self, v: Tensor, ids: Tensor) -> Tensor:
        """As of every codebook; chosen labels of many rows are scored without their vectors."""
        own_ids = ids.ndim == v.ndim == 2 and ids.shape[0] == v.shape[0] and v.shape[1] == self.dim
        on_cpu = self.device.type == "cpu" and v.is_cpu and ids.is_cpu and v.dtype == torch.float32
        needs_grad = self.bases is not None or (v.requires_grad and torch.is_grad_enabled())
        if not (own_ids and on_cpu and has_values(v, ids)) or needs_grad:
            return super().scores_of(v, ids)
        from holobind.codebooks._slices import slice_products  # compiles when first used

        self._verify()
        starts = self.slice_starts(checked_labels(ids, self.n_labels, ndim=2).long()).numpy()
        out = np.empty(ids.shape, np.float32)
        slice_products(v.detach().contiguous().numpy(), self.doubled_bases().numpy(), starts, out)
        return torch.from_numpy(out)

    def _encode(self, labels: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        if self.bases is not None:
            return sum_sets(self._vectors(labels), offsets, weights)
        chunks = set_chunks(labels, offsets, weights, max(1, limits.MAX_BLOCK_SCORES // self.dim))
        sums = [sum_sets(self._vectors(ids), starts, factors) for ids, starts, factors in chunks]
        return torch.cat(sums) if len(sums) > 1 else sums[0]

    def _vectors(self, ids: Tensor) -> Tensor:
        starts = self.slice_starts(ids)
        if self.bases is not None or not has_values(ids):
            doubled = irfft(self._conj_spectra().conj(), n=self.dim).repeat(1, 2).flatten()
            return doubled[starts[:, None] + torch.arange(self.dim, device=starts.device)]
        doubled = self.doubled_bases()
        return doubled.as_strided((doubled.numel() - self.dim + 1, self.dim), (1, 1)).index_select(0, starts)

    def doubled_bases(self) -> Tensor:
        """Each base twice in a row, so that every roll of it is a slice; `slice_starts` gives where it starts.

        The tensor is made when first used and then kept: training needs it, searching does not.

        Shapes: -> (bases * 2 d)
        """
        if self._doubled_bases is None:
            bases = reproducible_irfft(self._conj_spectra().conj(), self.dim)
            self._doubled_bases = bases.repeat(1, 2).flatten()
        return self._doubled_bases

    def slice_starts(self, ids: Tensor) -> Tensor:
        """Where in `doubled_bases` the vectors of labels start.  Shapes: (n) -> (n)"""
        return ids // self.dim * (3 * self.dim) + self.dim - ids

    def bind(self, p: Tensor) -> Codebook:
        if self.bases is not None:
            raise OptionError("bind: these vectors are trainable and change; bind their sums instead")
        key = rfft(checked_key(p, self.dim).cpu())
        return self._like(self.n_labels, key if self._key is None else self._key * key)

    def expand_to(self, n_labels: int) -> Codebook:
        expanded = self._like(checked_expansion(self.n_labels, n_labels), self._key)
        if self.bases is None:
            return expanded
        expanded = expanded.to_trainable()
        assert expanded.bases is not None
        expanded.bases.data[: self.n_bases] = self.bases.data
        return expanded.to(self.device)

    def to_trainable(self) -> "OrbitCodebook":
        copy = self._like(self.n_labels, self._key)
        copy.bases = nn.Parameter(irfft(copy._drawn_conj_spectra.conj(), n=self.dim).to(self.device))
        return copy

    def _like(self, n_labels: int, key: Tensor | None) -> "OrbitCodebook":
        assert self.seed is not None
        return OrbitCodebook(n_labels, self.dim, self.seed, key=key).to(self.device)

    def _forget_copies(self) -> None:
        self._doubled_bases = self._pair_spectra = None
