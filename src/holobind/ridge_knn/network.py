"""A linear encoder that recalls its own errors, in a few bits a weight, and trees beside it.

    v(x) = x W + b + knn_weight sum_i w_i (t_i - x_i W - b)          i over the nearest training rows
    w_i  = cos(x, x_i)^similarity_power / sum_j cos(x, x_j)^similarity_power     features scale_columns by idf^idf_power
    t_i  = sum_l (n_max / n_l)^rare_label_boost c_l                            l over the labels of row i; n_l rows have label l

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

from holobind import algebra
from holobind._types import CsrArray
from holobind.codebooks import OneHotCodebook, OrbitCodebook
from holobind.data.batches import Rows
from holobind.errors import OptionError
from holobind.networks.base import Network
from holobind.ridge_knn import quantise as quantise
from holobind.ridge_knn.encoder import TABLE, Encoder
from holobind.ridge_knn.forest import HIGH, Forest

SMALL = 1 << 21  # weights up to which four bits are spent on each: two lose a quarter of a point where features are few


class RidgeKnn(Network):
    """The encoder and what it recalls. Nothing of it is trained by steps; it works on the CPU.

    rows, entries, labels   training rows that are kept, their entries, and the entries of their label sets
    similarity_power, knn_weight, idf_power, rare_label_boost   as above; a knn_weight of 0 recalls nothing, and keeps rows for trees only
    bits   of a weight, 2 or 4
    forest, share   the config of the trees, and how much they count, from 0 to 1
    """

    @property
    def deflated(self) -> tuple[str, ...]:  # type: ignore[override]
        kept = ("row_offsets", "row_ids", "row_values", "label_offsets", "label_ids")
        return kept if self.forest is None else (*kept, "forest.levels", "forest.branches")

    n_features: int
    codes: Tensor  # (f, ceil(bits d / 8)) uint8, and
    scales: Tensor  # (f) float16: W in few bits a weight, turned where label vectors are unit vectors
    bias: Tensor  # (d)
    row_offsets: Tensor  # (rows + 1) int64, with
    row_ids: Tensor  # (entries) in 16 bits, or int32 where features are more,
    row_values: Tensor  # (entries) float16: the training rows
    label_offsets: Tensor  # (rows + 1) int64, with
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
        similarity_power: float = 2.0,
        knn_weight: float = 0.0,
        idf_power: float = 0.0,
        rare_label_boost: float = 0.0,
        bits: int = 4,
        forest: dict[str, Any] | None = None,
        share: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if min(n_features, out_features, n_labels) < 1 or min(rows, entries, labels) < 0:
            raise OptionError(
                f"RidgeKnn: wants positive sizes; got {n_features} features, {out_features} numbers, {n_labels} labels"
            )
        for name, value in (
            ("similarity_power", similarity_power),
            ("knn_weight", knn_weight),
            ("idf_power", idf_power),
            ("rare_label_boost", rare_label_boost),
        ):
            if not (np.isfinite(value) and value >= 0):
                raise OptionError(f"RidgeKnn: {name} must be a number and not negative; got {value}")
        if rare_label_boost > 1 or not (0 <= share <= 1 and bool(share) == bool(forest)):
            raise OptionError(
                f"RidgeKnn: rare_label_boost and share are at most 1, share without trees is 0; got {rare_label_boost}, {share}"
            )
        if bits not in quantise.STEPS:
            raise OptionError(f"RidgeKnn: bits must be 2 or 4; got {bits}")
        self.n_features, self.out_features, self.n_labels, self.seed = n_features, out_features, n_labels, seed
        self.similarity_power, self.knn_weight, self.idf_power = (
            float(similarity_power),
            float(knn_weight),
            float(idf_power),
        )
        self.rare_label_boost, self.bits, self.share = float(rare_label_boost), int(bits), float(share)
        self.forest = Forest(n_features, **forest) if forest else None
        buffers = {
            "codes": torch.zeros(n_features, -(-out_features * bits // 8), dtype=torch.uint8),
            "scales": torch.zeros(n_features, dtype=torch.float16),
            "bias": torch.zeros(out_features),
            "row_offsets": torch.zeros(rows + 1, dtype=torch.int64),
            "row_ids": torch.zeros(entries, dtype=_ids(n_features)),
            "row_values": torch.zeros(entries, dtype=torch.float16),
            "label_offsets": torch.zeros(rows + 1, dtype=torch.int64),
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
        X: CsrArray,
        Y: CsrArray,
        *,
        knn_weight: float,
        similarity_power: float = 2.0,
        idf_power: float = 0.0,
        rare_label_boost: float = 0.0,
        forest: Forest | None = None,
        share: float = 0.0,
        seed: int = 0,
    ) -> Self:
        """Pack an encoder and the training rows that it is to recall.  Shapes: (f, d), (d), (n, f), (n, L)"""
        bits = 4 if W.numel() <= SMALL else 2
        if not knn_weight and not share:
            X, Y = X[:0], Y[:0]
        forest = forest if share else None
        made = cls(
            X.shape[1], W.shape[1], Y.shape[1],
            rows=X.shape[0], entries=X.nnz, labels=Y.nnz,
            similarity_power=similarity_power, knn_weight=knn_weight, idf_power=idf_power, rare_label_boost=rare_label_boost, bits=bits,
            forest=None if forest is None else forest.config(), share=share, seed=seed,
        )  # fmt: skip
        made.forest = forest
        made.codes, made.scales = quantise.pack(algebra.bind(W, made._turn()) if made.plain else W, bits)
        made.bias = bias.detach().clone()
        for name, matrix in (("row", X), ("label", Y)):
            setattr(made, f"{name}_offsets", torch.from_numpy(matrix.indptr.astype(np.int64)))
            kept = np.int16 if getattr(made, f"{name}_ids").dtype == torch.int16 else np.int32
            setattr(made, f"{name}_ids", torch.from_numpy(matrix.indices.astype(kept)))  # the lowest bits
        made.row_values.copy_(torch.from_numpy(np.asarray(X.data, np.float32)))
        return made

    def forward(self, rows: Rows) -> Tensor:
        """Shapes: sparse (rows, n_features) -> (rows, out_features)"""
        ids, starts, values = (part.cpu().numpy() for part in rows)
        ends = np.append(starts, len(ids))
        X = sparse.csr_array((values, ids.astype(np.int32), ends), (len(starts), self.n_features))
        return self.encode(X).to(rows.ids.device)

    def encode(self, X: CsrArray) -> Tensor:
        """v of rows in CSR.  Shapes: (n, f) -> (n, d)"""
        return self.prepare().encode(X)

    def prepare(self) -> Encoder:
        """Make ready what rows are encoded with."""
        if self._ready is None:
            self._ready = Encoder(self)
        return self._ready

    def training_rows(self) -> tuple[CsrArray, CsrArray]:
        """The training rows and label sets that it keeps.  Shapes: -> (n, f), (n, L)"""
        n = len(self.row_offsets) - 1
        X = (self.row_values.float().numpy(), _as_ids(self.row_ids), self.row_offsets.numpy())
        Y = (np.ones(len(self.label_ids), np.float32), _as_ids(self.label_ids), self.label_offsets.numpy())
        return sparse.csr_array(X, (n, self.n_features)), sparse.csr_array(Y, (n, self.n_labels))

    def weights(self) -> Tensor:
        """W in float32.  Shapes: -> (f, d)"""
        W = quantise.unpack(self.codes, self.scales, self.out_features, self.bits)
        return algebra.unbind(W, self._turn()) if self.plain else W

    def codebook(self) -> OrbitCodebook | OneHotCodebook:
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
            ends, ids = getattr(self, f"{name}_offsets").numpy(), _as_ids(getattr(self, f"{name}_ids"))
            if ends[0] != 0 or ends[-1] != len(ids) or (np.diff(ends) < 0).any():
                raise OptionError(f"RidgeKnn: the {name}_offsets do not cut its entries into rows")
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
                raise OptionError(f"RidgeKnn: the {name}_ids must be from 0 to {size - 1}")
        if self.forest is not None:
            trees, rows = len(self.forest.roots), len(self.row_offsets) - 1
            made = trees * HIGH * self.n_features, self.forest.n_leaves * self.out_features, rows * trees
            if max(made) > TABLE:
                raise OptionError(f"RidgeKnn: its trees would take {max(made)} numbers; at most {TABLE}")
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
            "rows": len(self.row_offsets) - 1,
            "entries": len(self.row_ids),
            "labels": len(self.label_ids),
            "similarity_power": self.similarity_power,
            "knn_weight": self.knn_weight,
            "idf_power": self.idf_power,
            "rare_label_boost": self.rare_label_boost,
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


def codebook(n_labels: int, dim: int, seed: int) -> OrbitCodebook | OneHotCodebook:
    """Unit vectors as label vectors, where there are enough of them, or an orbit."""
    return OneHotCodebook(n_labels, dim) if n_labels <= dim else OrbitCodebook(n_labels, dim, seed)


def _ids(size: int) -> torch.dtype:
    """Of ids below `size`: their lowest 16 bits, where these do (torch can hold uint16, but not pickle it)."""
    return torch.int16 if size <= 1 << 16 else torch.int32


def _as_ids(stored: Tensor) -> NDArray[np.int32]:
    array = stored.numpy()
    return (array.view(np.uint16) if array.dtype == np.int16 else array).astype(np.int32)
