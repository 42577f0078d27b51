"""The default network: ridge regression onto sums of label vectors, plus a kNN residual, plus trees where they help.

    v(x) = x W + b + knn_weight sum_i w_i (t_i - x_i W - b)                      i over the 30 nearest training rows
    w_i  = cos(x, x_i)^similarity_power / sum_j cos(x, x_j)^similarity_power     features times idf^idf_power
    t_i  = sum_l (n_max / n_l)^rare_label_boost c_l                              l over the labels of row i

where n_l training rows have label l, n_max is the largest n_l, and c_l is the codebook's vector of label l. With trees,

    v'(x) = (1 - forest_weight) (v(x) + LEAF_RESIDUAL_WEIGHT e) + forest_weight t

where t and e are the means of t_i and of the residuals t_i - x_i W - b over the training rows in the leaves of x.

With label trees, the score of label l is <v(x), c_l> + tree_weight max(log P(l | x), -6), but for a constant
(`label_tree`). Squares are weak where single rare features decide; the trees' squared hinge loss is not.

The kNN term adds what a linear map misses, because it is linear or because of its penalty: the mean residual of the
training rows that are most similar to x. It is added as a vector, so that labels are still decoded once. Residuals are
not stored. They are computed from the stored training rows and label sets, which are sparse, and W, which is quantised
to two or four bits a weight (`quantise`, `encoder`). Leaf values of trees are not stored either.

With n_labels <= d, label vectors are one-hot and the outputs are the labels' scores. W is then bound with a random
unitary vector before it is quantised, because quantisation loses least where weights are spread evenly.

The penalty shrinks the scores of rare labels more than those of frequent ones. Target vectors that are longer for rare
labels compensate for it. The model is linear in its targets, so each label's score is multiplied by the length of its
vector, and prediction needs no other change.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn

from holobind import algebra
from holobind._processes import ALONE, Processes
from holobind._types import CsrArray, FloatArray, IntArray, RowIndex
from holobind.codebooks import OneHotCodebook, OrbitCodebook
from holobind.data.batches import Examples, SparseBatch, SparseExamples
from holobind.data.csr import checked_csr, column_counts, from_arrays, scale_columns
from holobind.errors import OptionError
from holobind.networks.base import Network
from holobind.ridge_knn._module import FixedDtypeModule
from holobind.ridge_knn.encoder import Encoder, rare_label_weights
from holobind.ridge_knn.forest import TOP_SPLITS, Forest
from holobind.ridge_knn.label_tree import COMPRESSED_TREE_TENSORS, LabelTree, search_trees
from holobind.ridge_knn.quantise import STEPS, dequantise, quantise_blocks
from holobind.ridge_knn.update_state import UpdateState

# Memory of the tables of an `Encoder`, with the temporary arrays they are computed by: bytes for each stored feature,
# label and row, for each element of a leaf value, and for each leaf of a row.
ENTRY_BYTES, LABEL_BYTES, ROW_BYTES, LEAF_VALUE_BYTES, LEAF_ID_BYTES = 64, 32, 64, 9, 40
MAX_LABEL_TREES = 8
WEIGHT_BLOCK_ROWS = 1 << 9  # of W, which are rotated and quantised at a time
MAX_FOUR_BIT_WEIGHTS = 1 << 21  # larger matrices get two bits a weight; smaller ones would lose 0.25 points by that

WeightBlocks = Iterable[Tensor]


class RidgeKnn(FixedDtypeModule, Network):
    """Ridge regression plus kNN residuals, and trees: buffers, which are packed as in a model file, and settings.

    It has no parameters to train. Buffers move between devices but keep their dtypes. Outputs are computed on the CPU
    and returned on the device of the input.

    rows, entries, labels   numbers of training rows, of their features that are not 0, and of their labels
    similarity_power        power of the cosine in the weights of neighbours
    knn_weight              weight of the mean residual; with 0 there is no kNN term, and only a forest needs rows
    idf_power               power of the features' idf weights in the cosine
    rare_label_boost        power of n_max / n_l, the length of a label's target vector
    bits                    of a weight of W, 2 or 4
    forest, forest_weight   `Forest.config()` of the trees, and their weight, from 0 to 1
    label_trees             `LabelTree.config()` of each label tree
    tree_weight             weight of log-probabilities of label trees; 0 without any
    learning_on             `UpdateState.config()` of what updates need, if it is kept (`update`)
    seed                    of the codebook
    """

    kind: ClassVar[str] = "ridge_knn"
    closed_form: ClassVar[bool] = True

    n_features: int
    codes: Tensor  # (f, ceil(bits d / 8)) uint8: quantised W
    scales: Tensor  # (f) float16: scales of the codes
    bias: Tensor  # (d) float32
    row_offsets: Tensor  # (rows + 1) int64: the training rows as CSR
    row_ids: Tensor  # (entries) int16, or int32 for more than 65,536 features
    row_values: Tensor  # (entries) float16
    label_offsets: Tensor  # (rows + 1) int64: their label sets as CSR
    label_ids: Tensor  # (labels) int16, or int32 for more than 65,536 labels

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
        forest_weight: float = 0.0,
        label_trees: Sequence[dict[str, Any]] = (),
        tree_weight: float = 0.0,
        learning_on: dict[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if min(n_features, out_features, n_labels) < 1 or min(rows, entries, labels) < 0:
            raise OptionError(
                "RidgeKnn: features, dimensions and labels must be positive, rows and entries not negative; "
                f"got {n_features} features, {out_features} dimensions, {n_labels} labels"
            )
        for name, value in (
            ("similarity_power", similarity_power),
            ("knn_weight", knn_weight),
            ("idf_power", idf_power),
            ("rare_label_boost", rare_label_boost),
            ("tree_weight", tree_weight),
        ):
            if not (np.isfinite(value) and value >= 0):
                raise OptionError(f"RidgeKnn: {name} must be a finite number, 0 or larger; got {value}")
        if rare_label_boost > 1:
            raise OptionError(f"RidgeKnn: rare_label_boost must be at most 1; got {rare_label_boost}")
        if not (0 <= forest_weight <= 1 and bool(forest_weight) == bool(forest)):
            raise OptionError(
                f"RidgeKnn: forest_weight must be from 0 to 1, and 0 without a forest; got {forest_weight}"
            )
        if len(label_trees) > MAX_LABEL_TREES or bool(tree_weight) != bool(label_trees):
            raise OptionError(
                f"RidgeKnn: tree_weight must be 0 without label trees, of which there are at most {MAX_LABEL_TREES}; "
                f"got {tree_weight} and {len(label_trees)} trees"
            )
        if bits not in STEPS:
            raise OptionError(f"RidgeKnn: bits must be 2 or 4; got {bits}")
        self.n_features, self.out_features, self.n_labels, self.seed = n_features, out_features, n_labels, seed
        self.similarity_power, self.knn_weight = float(similarity_power), float(knn_weight)
        self.idf_power, self.rare_label_boost = float(idf_power), float(rare_label_boost)
        self.bits, self.forest_weight = int(bits), float(forest_weight)
        self.forest = Forest(n_features, **forest) if forest else None
        self.label_trees = nn.ModuleList(LabelTree(n_features, n_labels, **config) for config in label_trees)
        self.tree_weight = float(tree_weight)
        self.learning_on: UpdateState | None = None
        if learning_on is not None:
            columns = min(n_labels, out_features)
            self.learning_on = UpdateState(rows, n_features + 1, columns, n_labels, **learning_on)
        buffers = {
            "codes": torch.zeros(n_features, -(-out_features * bits // 8), dtype=torch.uint8),
            "scales": torch.zeros(n_features, dtype=torch.float16),
            "bias": torch.zeros(out_features),
            "row_offsets": torch.zeros(rows + 1, dtype=torch.int64),
            "row_ids": torch.zeros(entries, dtype=id_dtype(n_features)),
            "row_values": torch.zeros(entries, dtype=torch.float16),
            "label_offsets": torch.zeros(rows + 1, dtype=torch.int64),
            "label_ids": torch.zeros(labels, dtype=id_dtype(n_labels)),
        }
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)
        self.max_table_bytes = sys.maxsize  # of residuals that are kept, where memory is bounded
        self._encoder: Encoder | None = None

    @classmethod
    def from_weights(
        cls,
        W: Tensor | WeightBlocks,
        bias: Tensor,
        X: CsrArray,
        Y: CsrArray,
        *,
        knn_weight: float,
        similarity_power: float = 2.0,
        idf_power: float = 0.0,
        rare_label_boost: float = 0.0,
        forest: Forest | None = None,
        forest_weight: float = 0.0,
        label_trees: Sequence[LabelTree] = (),
        tree_weight: float = 0.0,
        learning_on: UpdateState | None = None,
        seed: int = 0,
        processes: Processes = ALONE,
    ) -> Self:
        """Pack a ridge regression and its training rows; W is a matrix, or blocks of its rows.

        processes   that have different blocks (`quantise_blocks`)

        Shapes: W (f, d), bias (d), X (n, f), Y (n, L)
        """
        n_features, dim = X.shape[1], len(bias)
        bits = 4 if n_features * dim <= MAX_FOUR_BIT_WEIGHTS else 2
        if not knn_weight and not forest_weight and learning_on is None:
            X, Y = X[:0], Y[:0]
        forest, label_trees = forest if forest_weight else None, label_trees if tree_weight else ()
        network = cls(
            n_features, dim, Y.shape[1],
            rows=X.shape[0], entries=X.nnz, labels=Y.nnz,
            similarity_power=similarity_power, knn_weight=knn_weight, idf_power=idf_power,
            rare_label_boost=rare_label_boost, bits=bits,
            forest=None if forest is None else forest.config(), forest_weight=forest_weight,
            label_trees=[tree.config() for tree in label_trees], tree_weight=tree_weight, seed=seed,
        )  # fmt: skip
        network.forest, network.label_trees = forest, nn.ModuleList(label_trees)
        network.learning_on = learning_on
        blocks = W.split(WEIGHT_BLOCK_ROWS) if isinstance(W, Tensor) else W
        key = network._key() if network.one_hot else None
        rotated = (block if key is None else algebra.bind(block, key) for block in blocks)
        network.codes, network.scales = quantise_blocks(rotated, bits, dim, processes)
        network.bias = bias.detach().clone()
        network.row_offsets, network.label_offsets = (torch.from_numpy(A.indptr.astype(np.int64)) for A in (X, Y))
        network.row_ids, network.label_ids = pack_ids(X), pack_ids(Y)
        network.row_values.copy_(torch.from_numpy(np.asarray(X.data, np.float32)))
        return network

    def forward(self, batch: SparseBatch) -> Tensor:
        """Shapes: sparse (rows, n_features) -> (rows, out_features)"""
        return self.encode(_csr(batch, self.n_features)).to(batch.ids.device)

    def predict_rows(self, examples: Examples, rows: RowIndex) -> Tensor:
        """The outputs of some rows of examples, which stay CSR all the way.  Shapes: (n) -> (n, out_features)"""
        if isinstance(examples, SparseExamples):
            return self.encode(examples.csr(rows)).to(self.bias.device)
        return super().predict_rows(examples, rows)

    def added_scores(self, examples: Examples, rows: RowIndex) -> tuple[Tensor, Tensor] | None:
        if not self.label_trees:
            return None
        if isinstance(examples, SparseExamples):
            added = self.label_scores(examples.csr(rows))
        else:
            added = self.label_scores(_csr(examples.batch(rows), self.n_features))
        return added if added is None else (self._on_device(added[0]), self._on_device(added[1]))

    def label_scores(self, X: CsrArray) -> tuple[FloatArray, IntArray] | None:
        """What label trees add to the scores of some labels of rows of norm 1, and these labels, -1 for none.

        Shapes: (n, f) -> (n, m), (n, m)
        """
        if not self.label_trees:
            return None
        found, labels = search_trees(self.trees(), checked_csr(X, "X", self.n_features))
        return np.float32(self.tree_weight) * found, labels

    def trees(self) -> list[LabelTree]:
        """The label trees."""
        return [tree for tree in self.label_trees if isinstance(tree, LabelTree)]

    def encode(self, X: CsrArray) -> Tensor:
        """The outputs v of rows of norm 1.  Shapes: (n, f) -> (n, d)"""
        return self.prepare().encode(checked_csr(X, "X", self.n_features))

    def prepare(self) -> Encoder:
        """Build the tables for fast outputs, once."""
        if self._encoder is None:
            self._encoder = Encoder(self)
        return self._encoder

    def release_tables(self) -> None:
        self._encoder = None
        for tree in self.trees():
            tree.release()

    def training_rows(self) -> tuple[CsrArray, CsrArray]:
        """The stored training rows and label sets, in float32.  Shapes: -> (n, f), (n, L)"""
        n = self.n_training_rows
        X = self.row_values.float().cpu().numpy(), unpack_ids(self.row_ids), self.row_offsets.cpu().numpy()
        ones = np.ones(len(self.label_ids), np.float32)
        Y = ones, unpack_ids(self.label_ids), self.label_offsets.cpu().numpy()
        return (
            from_arrays(*X, (n, self.n_features), canonical=False),
            from_arrays(*Y, (n, self.n_labels), canonical=False),
        )

    def targets(self, label_counts: IntArray | None = None) -> CsrArray:
        """Label sets of the training rows times lengths of target vectors; minus these where a label was rejected.

        label_counts   by which rare labels are boosted; by default those of the training rows

        Shapes: (L) -> (n, L)
        """
        Y, state = self.training_rows()[1], self.learning_on
        if state is not None and state.keeps_weights:
            weights = state.label_weights.cpu().numpy()
        else:
            counts = column_counts(Y) if label_counts is None else label_counts
            weights = rare_label_weights(counts, self.rare_label_boost)
        return scale_columns(Y if state is None else Y + state.rejections(), weights)

    def free_labels(self) -> list[int]:
        return [] if self.learning_on is None else [int(i) for i in self.learning_on.free_labels]

    def weights(self) -> Tensor:
        """W in float32, on the CPU.  Shapes: -> (f, d)"""
        W = dequantise(self.codes.cpu(), self.scales.cpu(), self.out_features, self.bits)
        return algebra.unbind(W, self._key()) if self.one_hot else W

    def codebook(self) -> OrbitCodebook | OneHotCodebook:
        """The label vectors of its targets."""
        return default_codebook(self.n_labels, self.out_features, self.seed)

    @property
    def one_hot(self) -> bool:
        """Whether label vectors are one-hot, and outputs are the labels' scores."""
        return self.n_labels <= self.out_features

    @property
    def codebook_name(self) -> str:
        return "one_hot" if self.one_hot else "orbit"

    @property
    def n_training_rows(self) -> int:
        """The number of stored training rows."""
        return len(self.row_offsets) - 1

    @property
    def compressed_tensors(self) -> tuple[str, ...]:
        rows = ("row_offsets", "row_ids", "row_values", "label_offsets", "label_ids")
        forest = () if self.forest is None else ("forest.levels", "forest.branches")
        trees = [f"label_trees.{i}.{name}" for i in range(len(self.label_trees)) for name in COMPRESSED_TREE_TENSORS]
        return (*rows, *forest, *trees)

    @property
    def output_layers(self) -> list[nn.Module]:
        return [self]

    def n_parameters(self) -> int:
        """The number of weights of the ridge regression."""
        return (self.n_features + 1) * self.out_features

    def describe(self) -> str:
        """A short description."""
        added = []
        if self.knn_weight:
            added.append(f"kNN residuals of {self.n_training_rows:,} training rows")
        if self.forest is not None:
            added.append(f"{self.forest.n_trees} trees")
        if self.label_trees:
            added.append(f"{len(self.label_trees)} label trees")
        return "ridge regression" + (f" plus {' and '.join(added)}" if added else "")

    def config(self) -> dict[str, Any]:
        """JSON values that, as keyword arguments of the class, build it again."""
        return {
            "n_features": self.n_features,
            "out_features": self.out_features,
            "n_labels": self.n_labels,
            "rows": self.n_training_rows,
            "entries": len(self.row_ids),
            "labels": len(self.label_ids),
            "similarity_power": self.similarity_power,
            "knn_weight": self.knn_weight,
            "idf_power": self.idf_power,
            "rare_label_boost": self.rare_label_boost,
            "bits": self.bits,
            "forest": None if self.forest is None else self.forest.config(),
            "forest_weight": self.forest_weight,
            "label_trees": [tree.config() for tree in self.trees()],
            "tree_weight": self.tree_weight,
            **({} if self.learning_on is None else {"learning_on": self.learning_on.config()}),
            "seed": self.seed,
        }

    def check_loaded(self) -> None:
        """Raise OptionError unless stored rows are CSR matrices, and all trees are trees: a file may hold anything."""
        for name, size in (("row", self.n_features), ("label", self.n_labels)):
            offsets, ids = getattr(self, f"{name}_offsets").numpy(), unpack_ids(getattr(self, f"{name}_ids"))
            # Neighbours are compared, not subtracted: the difference of two int64 may not fit.
            if offsets[0] != 0 or offsets[-1] != len(ids) or (offsets[1:] < offsets[:-1]).any():
                raise OptionError(f"RidgeKnn: {name}_offsets must ascend from 0 to {len(ids)}, the number of entries")
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
                raise OptionError(f"RidgeKnn: {name}_ids must be from 0 to {size - 1}")
        if self.forest is not None:
            self.forest.check_loaded()
        for tree in self.trees():
            tree.check_loaded()
        if self.learning_on is not None:
            self.learning_on.check_loaded()

    def working_bytes(self) -> int:
        """The memory, about, of the tables that are built from the stored rows and trees before the first output."""
        total = ENTRY_BYTES * len(self.row_ids) + LABEL_BYTES * len(self.label_ids) + ROW_BYTES * self.n_training_rows
        if self.forest is not None:
            trees, leaves = self.forest.n_trees, self.forest.n_leaves
            total += (TOP_SPLITS * trees + 2 * leaves) * self.n_features + LEAF_VALUE_BYTES * leaves * self.out_features
            total += LEAF_ID_BYTES * self.n_training_rows * trees
        return total + sum(tree.working_bytes() for tree in self.trees())

    def _on_device(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.bias.device)

    def _key(self) -> Tensor:
        """The random unitary vector that W is bound with where label vectors are one-hot.  Shapes: -> (d)"""
        return OrbitCodebook(1, self.out_features, self.seed).vectors(torch.zeros(1, dtype=torch.long))[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._encoder = None  # it was made of the tensors before
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self._encoder = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_encoder": None}  # copies and pickles build their own


def default_codebook(n_labels: int, dim: int, seed: int) -> OrbitCodebook | OneHotCodebook:
    """One-hot label vectors where d dimensions suffice for them, else an orbit."""
    return OneHotCodebook(n_labels, dim) if n_labels <= dim else OrbitCodebook(n_labels, dim, seed)


def _csr(batch: Any, n_features: int) -> CsrArray:
    """Shapes: a sparse batch of n rows -> (n, f)"""
    ids, offsets, values = (tensor.cpu().numpy() for tensor in batch)
    return csr_array((values, ids, np.append(offsets, len(ids))), (len(offsets), n_features))


def id_dtype(size: int) -> torch.dtype:
    """The dtype of stored ids below `size`: int16 holds 16 unsigned bits, because torch cannot pickle uint16."""
    return torch.int16 if size <= 1 << 16 else torch.int32


def pack_ids(A: CsrArray) -> Tensor:
    return torch.from_numpy(A.indices.astype(np.int16 if id_dtype(A.shape[1]) == torch.int16 else np.int32))


def unpack_ids(stored: Tensor) -> NDArray[np.int32]:
    ids = stored.cpu().numpy()
    return (ids.view(np.uint16) if ids.dtype == np.int16 else ids).astype(np.int32)
