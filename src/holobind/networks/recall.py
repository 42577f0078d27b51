"""A linear encoder that recalls its own errors, in a few bits a weight, and trees beside it.

    v(x) = x W + b + strength sum_i w_i (t_i - x_i W - b)          i over the nearest training rows
    w_i  = cos(x, x_i)^sharpness / sum_j cos(x, x_j)^sharpness     features weighted by idf^rarity
    t_i  = sum_l (n_max / n_l)^tail c_l                            l over the labels of row i; n_l rows have label l

and with trees, where t and e are means over training rows in leaves of x of t_i and of t_i - x_i W - b,

    (1 - share) (v(x) + MEND e) + share t

What a linear encoder cannot say, because it is linear or because a penalty holds it back, shows in its errors on rows
like x, and these are known: the second term is their mean, added as a vector, so that reading labels off v stays one
transform. Errors are not stored but made when they are asked for, from the training rows and label sets, which are
sparse, and W, in few bits a weight. Where labels are no more than the d numbers of v, these are their scores: label
vectors are unit vectors, and W is turned before it is packed (bound with a random unitary vector), as few bits hold
numbers best that are spread evenly. Where features are few and rows many, more can be known than a linear map holds,
and trees (`forest`) know some of it; what is in their leaves is not stored either.

A penalty shrinks the scores of rare labels more than those of frequent ones. Vectors that are longer the rarer their
label is make up for it: all is linear, so scores come out times these lengths, and prediction knows nothing of it.
"""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from holobind import algebra, fewbits
from holobind.codebook import OrbitCodebook, UnitCodebook
from holobind.errors import OptionError
from holobind.networks.forest import HIGH, Forest
from holobind.networks.inputs import Network, Rows
from holobind.networks.near import Near, rarities, weighted
from holobind.sparse import Floats, Sparse, add_alike, add_entries, add_rows, add_slices, round_rows
from holobind.threads import by_rows

Counts = NDArray[np.int16]
Ids = NDArray[np.int64]

# Adds to the outputs of some rows, from a first up to a last one, what they are the sum of.
Part = Callable[[int, int, Floats], None]

NEAREST = 30  # rows whose errors are recalled
FEWEST = 4  # features of a row that recalls, or is recalled, beside trees: with fewer it has more equals than 30
TABLE = 1 << 30  # bytes of errors that are kept once they have been made
SOME = 64  # rows that are summed up together
MEND = 0.6  # how much of the mean error in leaves is added
SMALL = 1 << 21  # weights up to which four bits are spent on each: two lose a quarter of a point where features are few


class Recall(Network):
    """The encoder and what it recalls. Nothing of it is trained by steps; it works on the CPU.

    rows, entries, labels   training rows that are kept, their entries, and the entries of their label sets
    sharpness, strength, rarity, tail   as above; a strength of 0 recalls nothing, and keeps rows for trees only
    bits   of a weight, 2 or 4
    forest, share   the config of the trees, and how much they count, from 0 to 1
    """

    @property
    def deflated(self) -> tuple[str, ...]:  # type: ignore[override]
        kept = ("row_ends", "row_ids", "row_values", "label_ends", "label_ids")
        return kept if self.forest is None else (*kept, "forest.levels", "forest.branches")

    n_features: int
    codes: Tensor  # (f, ceil(bits d / 8)) uint8, and
    scales: Tensor  # (f) float16: W in few bits a weight, turned where label vectors are unit vectors
    bias: Tensor  # (d)
    row_ends: Tensor  # (rows + 1) int64, with
    row_ids: Tensor  # (entries) in 16 bits, or int32 where features are more,
    row_values: Tensor  # (entries) float16: the training rows
    label_ends: Tensor  # (rows + 1) int64, with
    label_ids: Tensor  # (labels) likewise: their label sets

    def __init__(
        self,
        n_features: int,
        out_features: int,
        n_labels: int,
        *,
        rows: int = 0,
        entries: int = 0,
        labels: int = 0,
        sharpness: float = 2.0,
        strength: float = 0.0,
        rarity: float = 0.0,
        tail: float = 0.0,
        bits: int = 4,
        forest: dict[str, Any] | None = None,
        share: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if min(n_features, out_features, n_labels) < 1 or min(rows, entries, labels) < 0:
            raise OptionError(
                f"Recall: wants positive sizes; got {n_features} features, {out_features} numbers, {n_labels} labels"
            )
        for name, value in (("sharpness", sharpness), ("strength", strength), ("rarity", rarity), ("tail", tail)):
            if not (np.isfinite(value) and value >= 0):
                raise OptionError(f"Recall: {name} must be a number and not negative; got {value}")
        if tail > 1 or not (0 <= share <= 1 and bool(share) == bool(forest)):
            raise OptionError(f"Recall: tail and share are at most 1, share without trees is 0; got {tail}, {share}")
        if bits not in fewbits.STEPS:
            raise OptionError(f"Recall: bits must be 2 or 4; got {bits}")
        self.n_features, self.out_features, self.n_labels, self.seed = n_features, out_features, n_labels, seed
        self.sharpness, self.strength, self.rarity = float(sharpness), float(strength), float(rarity)
        self.tail, self.bits, self.share = float(tail), int(bits), float(share)
        self.forest = Forest(n_features, **forest) if forest else None
        buffers = {
            "codes": torch.zeros(n_features, -(-out_features * bits // 8), dtype=torch.uint8),
            "scales": torch.zeros(n_features, dtype=torch.float16),
            "bias": torch.zeros(out_features),
            "row_ends": torch.zeros(rows + 1, dtype=torch.int64),
            "row_ids": torch.zeros(entries, dtype=_ids(n_features)),
            "row_values": torch.zeros(entries, dtype=torch.float16),
            "label_ends": torch.zeros(rows + 1, dtype=torch.int64),
            "label_ids": torch.zeros(labels, dtype=_ids(n_labels)),
        }
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)
        self._ready: Encoder | None = None

    @classmethod
    def of(
        cls,
        W: Tensor,
        bias: Tensor,
        X: Sparse,
        Y: Sparse,
        *,
        strength: float,
        sharpness: float = 2.0,
        rarity: float = 0.0,
        tail: float = 0.0,
        forest: Forest | None = None,
        share: float = 0.0,
        seed: int = 0,
    ) -> Self:
        """Pack an encoder and the training rows that it is to recall.  Shapes: (f, d), (d), (n, f), (n, L)"""
        bits = 4 if W.numel() <= SMALL else 2
        if not strength and not share:
            X, Y = X[:0], Y[:0]
        forest = forest if share else None
        made = cls(
            X.shape[1], W.shape[1], Y.shape[1],
            rows=X.shape[0], entries=X.nnz, labels=Y.nnz,
            sharpness=sharpness, strength=strength, rarity=rarity, tail=tail, bits=bits,
            forest=None if forest is None else forest.config(), share=share, seed=seed,
        )  # fmt: skip
        made.forest = forest
        made.codes, made.scales = fewbits.pack(algebra.bind(W, made._turn()) if made.plain else W, bits)
        made.bias = bias.detach().clone()
        for name, matrix in (("row", X), ("label", Y)):
            setattr(made, f"{name}_ends", torch.from_numpy(matrix.indptr.astype(np.int64)))
            kept = np.int16 if getattr(made, f"{name}_ids").dtype == torch.int16 else np.int32
            setattr(made, f"{name}_ids", torch.from_numpy(matrix.indices.astype(kept)))  # the lowest bits
        made.row_values.copy_(torch.from_numpy(np.asarray(X.data, np.float32)))
        return made

    def forward(self, rows: Rows) -> Tensor:
        """Shapes: sparse (rows, n_features) -> (rows, out_features)"""
        ids, starts, values = (part.cpu().numpy() for part in rows)
        ends = np.append(starts, len(ids))
        X = sparse.csr_matrix((values, ids.astype(np.int32), ends), (len(starts), self.n_features))
        return self.encode(X).to(rows.ids.device)

    def encode(self, X: Sparse) -> Tensor:
        """v of rows in CSR.  Shapes: (n, f) -> (n, d)"""
        return self.prepare().encode(X)

    def prepare(self) -> "Encoder":
        """Make ready what rows are encoded with."""
        if self._ready is None:
            self._ready = Encoder(self)
        return self._ready

    def remembered(self) -> tuple[Sparse, Sparse]:
        """The training rows and label sets that it keeps.  Shapes: -> (n, f), (n, L)"""
        n = len(self.row_ends) - 1
        X = (self.row_values.float().numpy(), _as_ids(self.row_ids), self.row_ends.numpy())
        Y = (np.ones(len(self.label_ids), np.float32), _as_ids(self.label_ids), self.label_ends.numpy())
        return sparse.csr_matrix(X, (n, self.n_features)), sparse.csr_matrix(Y, (n, self.n_labels))

    def weights(self) -> Tensor:
        """W in float32.  Shapes: -> (f, d)"""
        W = fewbits.unpack(self.codes, self.scales, self.out_features, self.bits)
        return algebra.unbind(W, self._turn()) if self.plain else W

    def codebook(self) -> OrbitCodebook | UnitCodebook:
        """The label vectors that it was solved for."""
        return codebook(self.n_labels, self.out_features, self.seed)

    @property
    def plain(self) -> bool:
        """Whether label vectors are unit vectors, and the output their scores."""
        return self.n_labels <= self.out_features

    def _turn(self) -> Tensor:
        return OrbitCodebook(1, self.out_features, self.seed).vectors(torch.zeros(1, dtype=torch.long))[0]

    def check(self) -> None:
        """Raise OptionError unless the kept rows are matrices: what a file says must not be trusted."""
        for name, size in (("row", self.n_features), ("label", self.n_labels)):
            ends, ids = getattr(self, f"{name}_ends").numpy(), _as_ids(getattr(self, f"{name}_ids"))
            if ends[0] != 0 or ends[-1] != len(ids) or (np.diff(ends) < 0).any():
                raise OptionError(f"Recall: the {name}_ends do not cut its entries into rows")
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
                raise OptionError(f"Recall: the {name}_ids must be from 0 to {size - 1}")
        if self.forest is not None:
            trees, rows = len(self.forest.roots), len(self.row_ends) - 1
            made = trees * HIGH * self.n_features, self.forest.n_leaves * self.out_features, rows * trees
            if max(made) > TABLE:
                raise OptionError(f"Recall: its trees would take {max(made)} numbers; at most {TABLE}")
            self.forest.check()

    @property
    def last(self) -> list[nn.Module]:
        return [self]

    def n_weights(self) -> int:
        return (self.n_features + 1) * self.out_features

    def config(self) -> dict[str, Any]:
        return {
            "n_features": self.n_features,
            "out_features": self.out_features,
            "n_labels": self.n_labels,
            "rows": len(self.row_ends) - 1,
            "entries": len(self.row_ids),
            "labels": len(self.label_ids),
            "sharpness": self.sharpness,
            "strength": self.strength,
            "rarity": self.rarity,
            "tail": self.tail,
            "bits": self.bits,
            "forest": None if self.forest is None else self.forest.config(),
            "share": self.share,
            "seed": self.seed,
        }

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        return self  # it stays where it works, and in its own precision

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self._ready = None  # it is of the tensors before

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_ready": None}  # what is only made to be fast is made again


class Encoder:
    """A packed network made ready: weights in eight bits, and so the errors, which are made when they are asked for.

    near   whether near rows will be asked for
    """

    def __init__(self, packed: Recall, near: bool = True) -> None:
        if packed.plain:
            self.levels, self.scales = _rounded(packed.weights().numpy())
        else:
            self.levels = fewbits.levels(packed.codes, packed.out_features, packed.bits).numpy()
            self.scales = (packed.scales.float() / 2).numpy()
        self.bias, self.book = packed.bias.float().numpy(), packed.codebook()
        self.sharpness, self.strength = packed.sharpness, packed.strength
        self.X, sets = packed.remembered()
        self.Y = weighted(sets, lengths(np.bincount(sets.indices, minlength=sets.shape[1]), packed.tail))
        # Pages that are never written take no memory.
        n, d = self.X.shape[0], packed.out_features
        self.table = np.empty((n, d), np.int8) if n * d <= TABLE else None
        self.steps, self.made = np.empty(n, np.float32), np.zeros(n, bool)
        self.forest, self.share = packed.forest, packed.share
        self.splits = None if self.forest is None else self.forest.laid_out()
        self.leaves = None if self.forest is None else self._leaves(self.forest)
        self.nearest = self.search(packed.rarity, self.forest is not None) if near and packed.strength else None

    def search(self, rarity: float, beside_trees: bool) -> Callable[[Sparse], tuple[Counts, Ids]] | None:
        """What finds the stored rows nearest to others, and how similar they are; None, if there are none to find.

        Beside trees, rows of few features neither ask nor are found.

        rarity   how much more rare features count
        """
        fewest = FEWEST if beside_trees else 0
        some = np.flatnonzero(np.diff(self.X.indptr) >= fewest)
        if not len(some):
            return None
        near = Near(self.X[some], rarities(self.X, rarity))

        def nearest(X: Sparse) -> tuple[Counts, Ids]:
            similar, ids = near(X, NEAREST, fewest)
            return similar, some[ids]

        return nearest

    def encode(self, X: Sparse) -> Tensor:
        """v of rows.  Shapes: (n, f) -> (n, d)"""
        rest = 1 - self.share
        parts = [self.linear(X, rest)]
        if self.nearest is not None:
            parts.append(self.recalled(*self.nearest(X), self.sharpness, rest * self.strength))
        if self.forest is not None:
            parts.append(self.consulted(X))
        return torch.from_numpy(self.total(parts, X.shape[0], rest))

    def total(self, parts: list[Part], n: int, rest: float = 0.0) -> Floats:
        """The sums, and so much of the bias; a few rows at a time, which stay in the cache.  Shapes: -> (n, d)"""
        v, bias = np.empty((n, len(self.bias)), np.float32), np.float32(rest) * self.bias

        def block(first: int, last: int) -> None:
            for top in range(first, last, SOME):
                some = v[top : min(top + SOME, last)]
                some[:] = bias
                for add in parts:
                    add(top, top + len(some), some)

        by_rows(block, n)
        return v

    def linear(self, X: Sparse, rest: float = 1.0) -> Part:
        """x W, times a number."""
        return _sums(X.indptr, X.indices, X.data * (self.scales * np.float32(rest))[X.indices], self.levels)

    def recalled(self, similar: Counts, ids: Ids, sharpness: float, strength: float) -> Part:
        """The mean errors of the nearest rows, by powers of their similarities.  Shapes: 2 x (n, k)"""
        table, steps = self.table, self.steps
        found = similar[:, 0] > 0  # rows that are near to some
        ids = ids[found]
        if table is None:
            used, ids = np.unique(ids, return_inverse=True)
            table, steps = self._errors(used)
        else:
            new = np.unique(ids[~self.made[ids]])
            if len(new):
                table[new], steps[new] = self._errors(new)
                self.made[new] = True
        ends = np.append(0, np.cumsum(np.where(found, similar.shape[1], 0)))
        values = shares(similar[found], sharpness) * np.float32(strength) * steps[ids]
        return _sums(ends, ids.ravel(), values.ravel(), table)

    def consulted(self, X: Sparse) -> Part:
        """The trees' mean of what is in the leaves of rows.  Shapes: (n, f)"""
        assert self.forest is not None and self.leaves is not None
        (table, step), ids = self.leaves, self.forest.leaves(X, self.splits)
        scale = np.float32(step / ids.shape[1])
        return lambda first, last, out: add_alike(ids[first:last], table, scale, out)

    def _leaves(self, forest: Forest) -> tuple[NDArray[np.int8], float]:
        """What the rows in each leaf say, share t + (1 - share) MEND e, rounded, and the step that all are rounded to.

        Shapes: -> (leaves, d), ()
        """
        at, d = forest.leaves(self.X, self.splits), len(self.bias)
        n, k = at.shape
        sizes = np.maximum(np.bincount(at.ravel(), minlength=forest.n_leaves), 1).astype(np.float32)
        of_rows = (1 / sizes)[at.ravel()], at.ravel(), np.arange(0, n * k + 1, k)
        means = sparse.csr_matrix(of_rows, (n, forest.n_leaves))
        mend = (1 - self.share) * MEND
        total = np.zeros((forest.n_leaves, d), np.float32)
        step = max(1, TABLE // (4 * d))
        for first in range(0, n, step):
            said, scales = self._errors(np.arange(first, min(first + step, n)), self.share + mend, mend)
            some = means[first : first + step].T.tocsr()
            values = some.data * scales[some.indices]

            def block(first: int, last: int) -> None:
                add_rows(some.indptr[first : last + 1], some.indices, values, said, total[first:last])  # noqa: B023

            by_rows(block, len(total))
        unit = float(np.abs(total).max(initial=0)) / 127 or 1.0
        return np.rint(total / unit, out=total).astype(np.int8), unit

    def _errors(self, rows: Ids, t: float = 1.0, linear: float = 1.0) -> tuple[NDArray[np.int8], Floats]:
        """What the linear encoder lacks on some training rows, rounded, and the steps that it is rounded to.

        t, linear   how much targets and the encoder count: t t_i - linear (x_i W + b)

        Shapes: (m) -> (m, d), (m)
        """
        X, Y, d = self.X[rows], self.Y[rows], len(self.bias)
        values, lengths = X.data * self.scales[X.indices] * np.float32(-linear), Y.data * np.float32(t)
        book = self.book
        if isinstance(book, OrbitCodebook):
            rings, starts = book.rings().numpy(), book.starts(torch.from_numpy(Y.indices)).numpy()
        found, steps = np.empty((len(rows), d), np.int8), np.empty(len(rows), np.float32)

        def block(first: int, last: int) -> None:
            room = np.empty((min(SOME, last - first), d), np.float32)
            for top in range(first, last, SOME):
                end = min(top + SOME, last)
                lacking = room[: end - top]
                lacking[:] = np.float32(-linear) * self.bias
                if isinstance(book, OrbitCodebook):
                    add_slices(Y.indptr[top : end + 1], starts, lengths, rings, lacking)
                else:
                    add_entries(Y.indptr[top : end + 1], Y.indices, lengths, lacking)
                add_rows(X.indptr[top : end + 1], X.indices, values, self.levels, lacking)
                round_rows(lacking, found[top:end], steps[top:end])

        by_rows(block, len(rows))
        return found, steps


def _sums(ends: NDArray[Any], index: NDArray[Any], values: Floats, table: NDArray[np.int8]) -> Part:
    """Sums over rows of a table in eight bits: where each sum ends, which rows, and times what."""
    return lambda first, last, out: add_rows(ends[first : last + 1], index, values, table, out)


def codebook(n_labels: int, dim: int, seed: int) -> OrbitCodebook | UnitCodebook:
    """Unit vectors as label vectors, where there are enough of them, or an orbit."""
    return UnitCodebook(n_labels, dim) if n_labels <= dim else OrbitCodebook(n_labels, dim, seed)


def lengths(counts: NDArray[np.int64], tail: float) -> Floats:
    """(n_max / n)^tail of labels that n rows have: 1 of the most frequent, more of others.  Shapes: (L) -> (L)"""
    return ((max(int(counts.max(initial=1)), 1) / np.maximum(counts, 1)) ** tail).astype(np.float32)


def shares(similar: Counts, sharpness: float) -> Floats:
    """Powers of similarities, as shares of their sum; all 0 where nothing is similar.  Shapes: (n, k) -> (n, k)"""
    # In float64, whose last bit may differ with the place in an array: float32's then does not.
    ratios = similar / np.maximum(similar[:, :1], 1).astype(np.float64)
    powers = ratios
    while sharpness % 2 == 0 and sharpness > 0:  # products take a tenth of the time of powers
        powers, sharpness = np.square(powers, out=powers), sharpness / 2
    if sharpness == 3:
        powers = powers * powers * powers
    elif sharpness != 1:
        powers = np.where(similar > 0, powers**sharpness, 0)  # also at sharpness 0
    total = powers.sum(1, keepdims=True)
    return np.divide(powers, total, out=powers, where=total > 0).astype(np.float32)


def _rounded(V: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Rows in eight bits, and their steps.  Shapes: (n, d) -> (n, d), (n)"""
    found, steps = np.empty(V.shape, np.int8), np.empty(len(V), np.float32)
    round_rows(V, found, steps)
    return found, steps


def _ids(size: int) -> torch.dtype:
    """Of ids below `size`: their lowest 16 bits, where these do (torch can hold uint16, but not pickle it)."""
    return torch.int16 if size <= 1 << 16 else torch.int32


def _as_ids(stored: Tensor) -> NDArray[np.int32]:
    array = stored.numpy()
    return (array.view(np.uint16) if array.dtype == np.int16 else array).astype(np.int32)
