"""A linear encoder that recalls its own errors: closed form, no epochs, and a file of a few bits a weight.

    v(x) = x W + b + strength sum_i w_i (t_i - x_i W - b)          i over the nearest training rows
    w_i  = <x, x_i>^sharpness / sum_j <x, x_j>^sharpness

W is ridge regression onto the sums t_i of label vectors (`solve`). What it cannot say, because it is linear or
because lam holds it back, shows in its errors on rows like x, and these are known: the second term is their mean,
added as a vector, so that reading labels off v stays one transform. Errors are not stored but made when they are
asked for, from the training rows and label sets, which are sparse, and W, in four bits a weight.

lam is chosen by `solve.ridge`, sharpness and strength on rows held out, by the mean of nDCG@5 and PSnDCG@5: the head of
the labels counts as much as the tail. Rows are taken at length 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import normalize
from torch import Tensor

from holobind import fourbit, solve
from holobind.codebook import OrbitCodebook
from holobind.errors import OptionError, ShapeError
from holobind.metrics import ndcg_at_k, propensity, psndcg_at_k
from holobind.sparse import Floats, Sparse, product, threaded

Progress = Callable[[str, float], None]

NEAREST = 30  # rows whose errors are recalled
HELD = 2000  # rows to choose sharpness and strength on
MOST = 2048  # dim of a codebook of more labels than that
NARROW = 512  # dim of the codebook that lam, sharpness and strength are chosen with
SHARPNESS = (1.0, 2.0, 4.0, 8.0)
STRENGTH = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
ROWS = 4096  # that are encoded at once


@dataclass(frozen=True, eq=False)
class Recall:
    """The encoder and what it recalls.

    codes      (f, ceil(d / 2)) and scales (f): W in four bits a weight
    bias       (d)
    X, Y       the training rows, of length 1 and in half precision, and their label sets
    codebook   the labels' vectors
    lam, sharpness, strength, validation    what was chosen, and that mean for all that was tried
    """

    codes: Tensor
    scales: Tensor
    bias: Tensor
    X: Sparse
    Y: Sparse
    codebook: OrbitCodebook
    lam: float
    sharpness: float
    strength: float
    validation: tuple[tuple[float, float, float], ...] = ()

    @cached_property
    def weights(self) -> Tensor:
        """W as float32.  Shapes: -> (f, d)"""
        return fourbit.unpack(self.codes, self.scales, len(self.bias))

    @cached_property
    def back(self) -> Sparse:
        """X by features.  Shapes: -> (f, n)"""
        return sparse.csr_matrix(self.X.T)

    def encode(self, X: Sparse) -> Tensor:
        """v of rows, for `codebook.top_k`.  Shapes: (n, f) -> (n, d)"""
        rows = unit_rows(X)
        if rows.shape[1] != len(self.codes):
            raise ShapeError(f"encode: X has {rows.shape[1]} features and the encoder {len(self.codes)}")
        found = [self._encode(rows[top : top + ROWS]) for top in range(0, rows.shape[0], ROWS)]
        return torch.cat(found) if found else self.bias.new_empty(0, len(self.bias))

    def _encode(self, rows: Sparse) -> Tensor:
        v = solve.apply(rows, self.weights, self.bias)
        if not self.strength:
            return v
        similar, ids = nearest(rows, self.back, NEAREST)
        used, which = np.unique(ids, return_inverse=True)
        errors = _errors(self.codebook, self.X[used], self.Y[used], self.weights, self.bias)
        share = _shares(similar, self.sharpness) * np.float32(self.strength)
        return v.add_(_mean(share, which.reshape(ids.shape), errors))

    def tensors(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What is to be stored: a header for JSON, and tensors."""
        header = {
            "n_features": len(self.codes),
            "dim": len(self.bias),
            "n_labels": self.codebook.n_labels,
            "seed": self.codebook.seed,
            "lam": self.lam,
            "sharpness": self.sharpness,
            "strength": self.strength,
        }
        stored = {"codes": self.codes, "scales": self.scales, "bias": self.bias}
        for name, matrix in (("rows", self.X), ("labels", self.Y)):
            stored[f"{name}.ends"] = torch.from_numpy(matrix.indptr.astype(np.int64))
            stored[f"{name}.ids"] = _short(matrix.indices, matrix.shape[1])
        stored["rows.values"] = torch.from_numpy(self.X.data).half()
        return header, stored

    @classmethod
    def from_tensors(cls, header: dict[str, Any], stored: dict[str, Tensor]) -> Self:
        """The encoder that `tensors` described."""
        n = len(stored["rows.ends"]) - 1

        def matrix(name: str, values: Floats, columns: int) -> Sparse:
            ids = stored[f"{name}.ids"].numpy().astype(np.int32)
            return sparse.csr_matrix((values, ids, stored[f"{name}.ends"].numpy()), (n, columns))

        return cls(
            codes=stored["codes"],
            scales=stored["scales"],
            bias=stored["bias"],
            X=matrix("rows", stored["rows.values"].float().numpy(), header["n_features"]),
            Y=matrix("labels", np.ones(len(stored["labels.ids"]), np.float32), header["n_labels"]),
            codebook=OrbitCodebook(header["n_labels"], header["dim"], header["seed"]),
            lam=float(header["lam"]),
            sharpness=float(header["sharpness"]),
            strength=float(header["strength"]),
        )


def fit(
    X: Sparse,
    Y: Sparse,
    *,
    dim: int | None = None,
    lam: float | None = None,
    strength: float | None = None,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Recall:
    """Solve for the encoder, and choose what is not given.

    `dim` is the first good size from the number of labels on, or 2048 if they are more. A larger `strength` moves the
    ranking from the head of the labels to their tail; 0 recalls nothing, and then no training row is kept.

    The result depends on the seed, through the codebook and the rows held out, and on threads as in `solve`.
    Shapes: X (n, f), Y (n, L)
    """
    if strength is not None and not (np.isfinite(strength) and strength >= 0):
        raise OptionError(f"fit: strength must be a number and not negative, or None to have it chosen; got {strength}")
    tell = on_progress or (lambda *_: None)
    n_labels = Y.shape[1]
    dim = dim or solve.dimension(n_labels, MOST)
    rows = unit_rows(X)
    sharpness = 2.0
    tried: list[tuple[float, float, float]] = []
    if rows.shape[0] > 5:
        # All that is chosen hardly depends on the dim: a narrow codebook does it in a fraction of the time.
        narrow = OrbitCodebook(n_labels, min(dim, solve.dimension(n_labels, NARROW)), seed)
        order = np.random.default_rng(seed).permutation(rows.shape[0])
        size = min(HELD, len(order) // 5)
        held, kept = np.sort(order[:size]), np.sort(order[size:])
        part = solve.ridge(rows[kept], Y[kept], narrow, lam, seed=seed, on_progress=tell)
        lam = part.lam
        errors = _errors(narrow, rows[kept], _sets(Y[kept]), part.weights, part.bias)
        linear = solve.apply(rows[held], part.weights, part.bias)
        similar, ids = nearest(rows[held], sparse.csr_matrix(rows[kept].T), NEAREST)
        means = {s: _mean(_shares(similar, s), ids, errors) for s in SHARPNESS}
        sharpness, strength, tried = _choose(narrow, Y[held], propensity(Y), linear, means, strength)
    book = OrbitCodebook(n_labels, dim, seed)
    found = solve.ridge(rows, Y, book, lam, seed=seed, on_progress=tell)
    if strength is None:
        strength = 1.0
    codes, scales = fourbit.pack(found.weights)
    kept_rows = rows if strength else rows[:0]
    kept_rows.data = kept_rows.data.astype(np.float16).astype(np.float32)
    return Recall(
        codes=codes,
        scales=scales,
        bias=found.bias,
        X=kept_rows,
        Y=_sets(Y if strength else Y[:0]),
        codebook=book,
        lam=found.lam,
        sharpness=sharpness,
        strength=float(strength),
        validation=tuple(tried),
    )


def unit_rows(X: Sparse) -> Sparse:
    """Rows divided by their lengths; a row of zeros stays one."""
    return sparse.csr_matrix(normalize(sparse.csr_matrix(X, dtype=np.float32)))


def nearest(rows: Sparse, back: Sparse, k: int) -> tuple[Floats, NDArray[np.int64]]:
    """The k largest positive products of rows with remembered ones, largest first, and which these are.

    Among equals the earlier row comes first. Where fewer than k are positive, products of 0 with row 0 fill up.
    `back` is the transpose of what is remembered.
    Shapes: (n, f), (f, m) -> (n, k), (n, k)
    """
    n = rows.shape[0]
    products, ids = np.zeros((n, k), np.float32), np.zeros((n, k), np.int64)
    height = max(1, -(-n // (4 * torch.get_num_threads())))

    def block(top: int) -> None:
        some = slice(top, min(top + height, n))
        _nearest(
            rows.indptr[some.start : some.stop + 1], rows.indices, rows.data,
            back.indptr, back.indices, back.data, back.shape[1], products[some], ids[some],
        )  # fmt: skip

    for _ in threaded(block, range(0, n, height)):
        pass
    return products, ids


def _choose(
    book: OrbitCodebook,
    Y: Sparse,
    chances: NDArray[np.float64],
    linear: Tensor,
    means: dict[float, Tensor],
    strength: float | None,
) -> tuple[float, float, list[tuple[float, float, float]]]:
    """Sharpness at a middling strength, then strength: both, and all that was tried with its score.

    `means` are the mean errors of the nearest rows by sharpness, `chances` the labels' propensities.
    """
    tried: dict[tuple[float, float], float] = {}

    def score(at: tuple[float, float]) -> float:
        if at not in tried:
            top = book.top_k(linear + at[1] * means[at[0]], min(5, book.n_labels))[1].numpy()
            tried[at] = float(ndcg_at_k(Y, top)[-1] + psndcg_at_k(Y, top, chances)[-1]) / 2
        return tried[at]

    middle = 0.75 if strength is None else strength
    sharpness = max(means, key=lambda s: score((s, middle)))
    if strength is None:
        strength = max(STRENGTH, key=lambda a: score((sharpness, a)))
    return sharpness, strength, [(*at, found) for at, found in tried.items()]


def _shares(similar: Floats, sharpness: float) -> Floats:
    """Powers of similarities, as shares of their sum; all 0 where nothing is similar.  Shapes: (n, k) -> (n, k)"""
    largest = similar[:, :1]
    powers = np.divide(similar, largest, out=np.zeros_like(similar), where=largest > 0) ** np.float32(sharpness)
    total = powers.sum(1, keepdims=True)
    return np.divide(powers, total, out=np.zeros_like(powers), where=total > 0)


def _mean(shares: Floats, ids: NDArray[np.int64], errors: Tensor) -> Tensor:
    """Sums of rows of `errors`, weighted by shares.  Shapes: (n, k), (n, k), (m, d) -> (n, d)"""
    n, k = shares.shape
    W = sparse.csr_matrix((shares.ravel(), ids.ravel(), np.arange(0, n * k + 1, k)), (n, len(errors)))
    return torch.from_numpy(product(W, errors.numpy()))


def _errors(book: OrbitCodebook, X: Sparse, Y: Sparse, W: Tensor, bias: Tensor) -> Tensor:
    """What the linear encoder lacks.  Shapes: X (m, f), Y (m, L) -> (m, d)"""
    labels, offsets = (torch.from_numpy(part.astype(np.int64)) for part in (Y.indices, Y.indptr[:-1]))
    return book.encode(labels, offsets) - solve.apply(X, W, bias)


def _sets(Y: Sparse) -> Sparse:
    """Ones where a label is present."""
    sets = sparse.csr_matrix(Y, dtype=np.float32)
    sets.eliminate_zeros()
    sets.data[:] = 1
    return sets


def _short(ids: NDArray[np.int32], size: int) -> Tensor:
    return torch.from_numpy(ids.astype(np.uint16 if size <= 1 << 16 else np.int32))


@numba.njit(nogil=True, cache=True)
def _nearest(ptr, index, value, ptr_t, index_t, value_t, m, products, ids):  # type: ignore[no-untyped-def]
    """Products through the lists of rows that have a feature; the best k by insertion, where few ever enter."""
    k = products.shape[1]
    scores = np.zeros(m, np.float32)
    for r in range(len(ptr) - 1):
        scores[:] = 0
        for j in range(ptr[r], ptr[r + 1]):
            x, f = value[j], index[j]
            for t in range(ptr_t[f], ptr_t[f + 1]):
                scores[index_t[t]] += x * value_t[t]
        for i in range(m):
            s = scores[i]
            if s > products[r, k - 1]:
                c = k - 1
                while c > 0 and s > products[r, c - 1]:
                    products[r, c] = products[r, c - 1]
                    ids[r, c] = ids[r, c - 1]
                    c -= 1
                products[r, c] = s
                ids[r, c] = i
