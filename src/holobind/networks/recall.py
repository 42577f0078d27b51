"""A linear encoder that recalls its own errors, in a few bits a weight.

    v(x) = x W + b + strength sum_i w_i (t_i - x_i W - b)          i over the nearest training rows
    w_i  = cos(x, x_i)^sharpness / sum_j cos(x, x_j)^sharpness     features weighted by idf^rarity
    t_i  = sum_l (n_max / n_l)^tail c_l                            l over the labels of row i; n_l rows have label l

What a linear encoder cannot say, because it is linear or because a penalty holds it back, shows in its errors on rows
like x, and these are known: the second term is their mean, added as a vector, so that reading labels off v stays one
transform. Errors are not stored but made when they are asked for, from the training rows and label sets, which are
sparse, and W, in few bits a weight.

A penalty shrinks the scores of rare labels more than those of frequent ones. Vectors that are longer the rarer their
label is make up for it: all is linear, so scores come out times these lengths, and prediction knows nothing of it.
"""

from typing import Any, Self

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from holobind import fewbits
from holobind.codebook import OrbitCodebook
from holobind.errors import OptionError
from holobind.networks.inputs import Network, Rows
from holobind.sparse import Floats, Sparse, gather, product, threaded

NEAREST = 30  # rows whose errors are recalled
TABLE = 1 << 30  # bytes of errors that are kept once they have been made
COLUMNS = 1 << 26  # numbers in the dense columns
SMALL = 1 << 21  # weights up to which four bits are spent on each: two lose a quarter of a point where features are few


class Recall(Network):
    """The encoder and what it recalls. Nothing of it is trained by steps; it works on the CPU.

    rows, entries, labels   training rows that are kept, their entries, and the entries of their label sets
    sharpness, strength, rarity, tail   as above; with a strength of 0 nothing is recalled, and no row need be kept
    bits   of a weight, 2 or 4
    """

    n_features: int
    codes: Tensor  # (f, ceil(bits d / 8)) uint8, and
    scales: Tensor  # (f) float16: W in few bits a weight
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
        if bits not in fewbits.STEPS:
            raise OptionError(f"Recall: bits must be 2 or 4; got {bits}")
        self.n_features, self.out_features, self.n_labels, self.seed = n_features, out_features, n_labels, seed
        self.sharpness, self.strength, self.rarity = float(sharpness), float(strength), float(rarity)
        self.tail, self.bits = float(tail), int(bits)
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
        self._ready: _Ready | None = None

    @classmethod
    def of(
        cls,
        W: Tensor,
        bias: Tensor,
        X: Sparse,
        Y: Sparse,
        *,
        sharpness: float,
        strength: float,
        rarity: float = 0.0,
        tail: float = 0.0,
        seed: int = 0,
    ) -> Self:
        """Pack an encoder and the training rows that it is to recall.  Shapes: (f, d), (d), (n, f), (n, L)"""
        bits = 4 if W.numel() <= SMALL else 2
        if not strength:
            X, Y = X[:0], Y[:0]
        made = cls(
            X.shape[1], W.shape[1], Y.shape[1],
            rows=X.shape[0], entries=X.nnz, labels=Y.nnz,
            sharpness=sharpness, strength=strength, rarity=rarity, tail=tail, bits=bits, seed=seed,
        )  # fmt: skip
        made.codes, made.scales = fewbits.pack(W, bits)
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
        self._ready = self._ready or _Ready(self)
        return self._ready.encode(X)

    def remembered(self) -> tuple[Sparse, Sparse]:
        """The training rows and label sets that it keeps.  Shapes: -> (n, f), (n, L)"""
        n = len(self.row_ends) - 1
        X = (self.row_values.float().numpy(), _as_ids(self.row_ids), self.row_ends.numpy())
        Y = (np.ones(len(self.label_ids), np.float32), _as_ids(self.label_ids), self.label_ends.numpy())
        return sparse.csr_matrix(X, (n, self.n_features)), sparse.csr_matrix(Y, (n, self.n_labels))

    def weights(self) -> Tensor:
        """W in float32.  Shapes: -> (f, d)"""
        return fewbits.unpack(self.codes, self.scales, self.out_features, self.bits)

    def codebook(self) -> OrbitCodebook:
        """The label vectors that it was solved for."""
        return OrbitCodebook(self.n_labels, self.out_features, self.seed)

    def check(self) -> None:
        """Raise OptionError unless the kept rows are matrices: what a file says must not be trusted."""
        for name, size in (("row", self.n_features), ("label", self.n_labels)):
            ends, ids = getattr(self, f"{name}_ends").numpy(), _as_ids(getattr(self, f"{name}_ids"))
            if ends[0] != 0 or ends[-1] != len(ids) or (np.diff(ends) < 0).any():
                raise OptionError(f"Recall: the {name}_ends do not cut its entries into rows")
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
                raise OptionError(f"Recall: the {name}_ids must be from 0 to {size - 1}")

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
            "seed": self.seed,
        }

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self._ready = None  # it is of the tensors before

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_ready": None}  # what is only made to be fast is made again


class _Ready:
    """The encoder unpacked, and the errors that were asked for so far."""

    def __init__(self, packed: Recall) -> None:
        self.W, self.bias, self.book = packed.weights(), packed.bias.float(), packed.codebook()
        self.sharpness, self.strength = packed.sharpness, packed.strength
        self.X, sets = packed.remembered()
        self.Y = weighted(sets, lengths(np.bincount(sets.indices, minlength=sets.shape[1]), packed.tail))
        self.weight = rarities(self.X, packed.rarity)
        self.near = Near(unit_rows(weighted(self.X, self.weight)))
        size = self.X.shape[0] * packed.out_features
        # Pages that are never written take no memory.
        self.table = np.empty((self.X.shape[0], packed.out_features), np.float32) if 4 * size <= TABLE else None
        self.made = np.zeros(self.X.shape[0], bool)

    def encode(self, X: Sparse) -> Tensor:
        v = torch.from_numpy(product(X, self.W.numpy())).add_(self.bias)
        if not self.strength or not self.X.shape[0]:
            return v
        similar, ids = self.near(weighted(X, self.weight), NEAREST)
        share = shares(similar, self.sharpness) * np.float32(self.strength)
        if self.table is None:
            used, which = np.unique(ids, return_inverse=True)
            return v.add_(mean(share, which.reshape(ids.shape), self._errors(used)))
        new = np.unique(ids[~self.made[ids]])
        if len(new):
            self.table[new], self.made[new] = self._errors(new), True
        return v.add_(mean(share, ids, self.table))

    def _errors(self, rows: NDArray[np.int64]) -> Floats:
        return errors(self.book, self.X[rows], self.Y[rows], self.W, self.bias).numpy()


def unit_rows(X: Sparse) -> Sparse:
    """Rows divided by their lengths; a row of zeros stays one."""
    found = sparse.csr_matrix(X)
    if not found.has_canonical_format:  # the length of a row counts a feature once
        found = found.copy()
        found.sum_duplicates()
    row = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    values = found.data.astype(np.float64)  # squares of large numbers fit
    lengths = np.sqrt(np.bincount(row, values**2, minlength=found.shape[0]))
    scaled = (values / np.where(lengths > 0, lengths, 1)[row]).astype(np.float32)
    return sparse.csr_matrix((scaled, found.indices, found.indptr), found.shape)


def rarities(X: Sparse, power: float) -> Floats:
    """idf^power of each feature: log (1 + n) / (1 + df) for n rows of which df have it.  Shapes: (n, f) -> (f)"""
    having = np.bincount(X.indices, minlength=X.shape[1])
    return (np.log((1 + X.shape[0]) / (1 + having)) ** power).astype(np.float32)


def lengths(counts: NDArray[np.int64], tail: float) -> Floats:
    """(n_max / n)^tail of labels that n rows have: 1 of the most frequent, more of others.  Shapes: (L) -> (L)"""
    return ((max(int(counts.max(initial=1)), 1) / np.maximum(counts, 1)) ** tail).astype(np.float32)


def weighted(X: Sparse, weight: Floats) -> Sparse:
    """Every column times its weight.  Shapes: (n, f), (f) -> (n, f)"""
    return sparse.csr_matrix((X.data * weight[X.indices], X.indices, X.indptr), X.shape)


class Near:
    """The rows nearest to others, by products, exactly.

    Products go through the lists of rows that have a feature. An entry of a list is added where it belongs, which takes
    as long as `dense` numbers of a column that has all rows: features of more than that share are kept as columns.
    """

    def __init__(self, X: Sparse, dense: float = 10) -> None:
        back = sparse.csr_matrix(X.T)
        having = np.diff(back.indptr)
        self.n = X.shape[0]
        most = np.argsort(-having, kind="stable")[: COLUMNS // max(self.n, 1)]
        frequent = np.sort(most[having[most] * dense > self.n])
        column = np.full(len(having), -1, np.int32)  # of a feature
        column[frequent] = np.arange(len(frequent))
        listed = np.where(column < 0, having, 0)
        kept = np.repeat(listed > 0, having)
        lists = back.indices[kept].astype(np.uint32)  # unsigned: compiled code need not look for negative ones
        self.features = column, back[frequent].toarray(), np.append(0, np.cumsum(listed)), lists, back.data[kept]

    def __call__(self, rows: Sparse, k: int) -> tuple[Floats, NDArray[np.int64]]:
        """The k largest positive products of each row, largest first, and with which rows.

        Among equals the earlier row comes first. Where fewer than k are positive, products of 0 with row 0 fill up.
        Shapes: (m, f) -> (m, k), (m, k)
        """
        m = rows.shape[0]
        products, ids = np.zeros((m, k), np.float32), np.zeros((m, k), np.int64)
        step = max(1, -(-m // (4 * torch.get_num_threads())))

        def work(first: int) -> None:
            some = slice(first, first + step)
            ends = rows.indptr[first : first + step + 1]
            _nearest(ends, rows.indices, rows.data, *self.features, self.n, products[some], ids[some])

        for _ in threaded(work, range(0, m, step)):
            pass
        return products, ids


def shares(similar: Floats, sharpness: float) -> Floats:
    """Powers of similarities, as shares of their sum; all 0 where nothing is similar.  Shapes: (n, k) -> (n, k)"""
    # In float64, whose last bit may differ with the place in an array: float32's then does not.
    ratios = similar.astype(np.float64)
    largest = ratios[:, :1].copy()
    np.divide(ratios, largest, out=ratios, where=largest > 0)
    powers = np.where(similar > 0, ratios**sharpness, 0)  # also at sharpness 0
    total = powers.sum(1, keepdims=True)
    return np.divide(powers, total, out=powers, where=total > 0).astype(np.float32)


def mean(share: Floats, ids: NDArray[np.int64], found: Floats) -> Tensor:
    """Sums of rows of `found`, weighted by shares.  Shapes: (n, k), (n, k), (m, d) -> (n, d)"""
    n, k = share.shape
    out = np.empty((n, found.shape[1]), np.float32)
    ends, flat, values = np.arange(0, n * k + 1, k), ids.ravel(), share.ravel()
    step = max(1, -(-n // (2 * torch.get_num_threads())))

    def block(first: int) -> None:  # by rows: few of `found` are wanted, and columns of it would be copied
        gather(ends[first : first + step + 1], flat, values, found, out[first : first + step])

    for _ in threaded(block, range(0, n, step)):
        pass
    return torch.from_numpy(out)


def errors(book: OrbitCodebook, X: Sparse, Y: Sparse, W: Tensor, bias: Tensor) -> Tensor:
    """What the linear encoder lacks; Y holds lengths of label vectors.  Shapes: X (m, f), Y (m, L) -> (m, d)"""
    labels, offsets = (torch.from_numpy(part.astype(np.int64)) for part in (Y.indices, Y.indptr[:-1]))
    wanted = book.encode(labels, offsets, torch.from_numpy(np.asarray(Y.data, np.float32)))
    return wanted - torch.from_numpy(product(X, W.numpy())).add_(bias)


def _ids(size: int) -> torch.dtype:
    """Of ids below `size`: their lowest 16 bits, where these do (torch can hold uint16, but not pickle it)."""
    return torch.int16 if size <= 1 << 16 else torch.int32


def _as_ids(stored: Tensor) -> NDArray[np.int32]:
    array = stored.numpy()
    return (array.view(np.uint16) if array.dtype == np.int16 else array).astype(np.int32)


@numba.njit(nogil=True, cache=True)
def _nearest(ptr, index, value, column, columns, ends, lists, weights, n, products, ids):  # type: ignore[no-untyped-def]
    """Products through columns and lists; the best k by insertion, where few ever enter."""
    k = products.shape[1]
    scores = np.empty(n, np.float32)
    for r in range(len(ptr) - 1):
        scores[:] = 0
        for j in range(ptr[r], ptr[r + 1]):
            x, f = value[j], index[j]
            if column[f] >= 0:
                dense = columns[column[f]]
                for i in range(n):
                    scores[i] += x * dense[i]
            else:
                for t in range(ends[f], ends[f + 1]):
                    scores[lists[t]] += x * weights[t]
        best, which = products[r], ids[r]
        least = best[k - 1]
        for i in range(n):
            s = scores[i]
            if s > least:
                c = k - 1
                while c > 0 and s > best[c - 1]:
                    best[c] = best[c - 1]
                    which[c] = which[c - 1]
                    c -= 1
                best[c] = s
                which[c] = i
                least = best[k - 1]
