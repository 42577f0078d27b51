"""What is added to a trained network: the nearest training rows (kNN) and label trees.

    score'(l) = score(l) + knn_weight sum_i w_i r_il + tree_weight (log P(l | x) + 6)
    w_i       = cos(x, x_i)^similarity_power / sum_j cos(x, x_j)^similarity_power       i over the 30 nearest rows

Neighbours add one of two things:

residuals   r_il = <t_i - (x_i W + b), c_l>, as in the closed form, where the network has a solved linear path x W + b.
            They are added to the output of the network, all labels at once (`LinearEncoder`). What hidden layers add
            to the path is left out: a network on tokens could only compute it from the texts of all training rows.
votes       r_il = y_il (n_max / n_l)^rare_label_boost, for every other network and loss. They touch the labels of 30
            rows and are 0 or larger, so that the search for the best labels stays exact (`heads.added_scores`).

A network that reads tokens alone has its neighbours in the bag of its tokens.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from torch import Tensor, nn

from holobind._types import CsrArray, FloatArray, IntArray, RowIndex
from holobind.data.batches import ExampleRows, Examples, SparseExamples, TextExamples, TokenExamples
from holobind.data.csr import (
    canonical_csr,
    checked_csr,
    column_counts,
    from_arrays,
    idf_weights,
    normalise_rows,
    row_entries,
)
from holobind.errors import OptionError
from holobind.heads import Head
from holobind.networks.base import Network
from holobind.ridge_knn._module import FixedDtypeModule
from holobind.ridge_knn.encoder import KnnSearch, LinearEncoder, quantised, rare_label_weights, similarity_weights
from holobind.ridge_knn.knn_index import N_NEIGHBOURS, KnnIndex
from holobind.ridge_knn.label_tree import COMPRESSED_TREE_TENSORS, LabelTree, search_trees
from holobind.ridge_knn.network import (
    ENTRY_BYTES,
    LABEL_BYTES,
    MAX_LABEL_TREES,
    ROW_BYTES,
    id_dtype,
    pack_ids,
    unpack_ids,
)

ROW_TENSORS = ("row_offsets", "row_ids", "row_values", "label_offsets", "label_ids")


class ExtraScores(FixedDtypeModule):
    """Neighbours and label trees: buffers, packed as in a model file, and settings.

    Buffers: row_offsets, row_ids, row_values   the training rows as CSR: (rows + 1), (entries), (entries) float16
             label_offsets, label_ids           their label sets as CSR: (rows + 1), (labels)

    rows, entries, labels   numbers of training rows, of their features that are not 0, and of their labels
    knn_weight              weight of the neighbours; 0 for none
    residuals               whether neighbours add their residuals to outputs; otherwise they vote
    similarity_power        power of the cosine in the weights of neighbours
    idf_power               power of the features' idf weights in the cosine
    rare_label_boost        power of n_max / n_l, by which a vote for label l counts, and its vector in a target
    label_trees             `LabelTree.config()` of each label tree
    tree_weight             weight of log-probabilities of label trees; 0 without any
    """

    row_offsets: Tensor
    row_ids: Tensor
    row_values: Tensor
    label_offsets: Tensor
    label_ids: Tensor

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        *,
        rows: int = 0,
        entries: int = 0,
        labels: int = 0,
        knn_weight: float = 0.0,
        similarity_power: float = 2.0,
        idf_power: float = 0.0,
        rare_label_boost: float = 0.0,
        label_trees: Sequence[dict[str, Any]] = (),
        tree_weight: float = 0.0,
        residuals: bool = False,
    ) -> None:
        super().__init__()
        if min(n_features, n_labels) < 1 or min(rows, entries, labels) < 0:
            raise OptionError(
                "ExtraScores: features and labels must be positive, rows and entries not negative; "
                f"got {n_features} features, {n_labels} labels, {rows} rows"
            )
        numbers = {
            "knn_weight": knn_weight,
            "similarity_power": similarity_power,
            "idf_power": idf_power,
            "rare_label_boost": rare_label_boost,
            "tree_weight": tree_weight,
        }
        for name, value in numbers.items():
            if not (np.isfinite(value) and value >= 0):
                raise OptionError(f"ExtraScores: {name} must be a finite number, 0 or larger; got {value}")
        if rare_label_boost > 1:
            raise OptionError(f"ExtraScores: rare_label_boost must be at most 1; got {rare_label_boost}")
        if len(label_trees) > MAX_LABEL_TREES or bool(tree_weight) != bool(label_trees):
            raise OptionError(
                f"ExtraScores: tree_weight must be 0 without label trees, of which there are at most {MAX_LABEL_TREES};"
                f" got {tree_weight} and {len(label_trees)} trees"
            )
        if not isinstance(residuals, bool):
            raise OptionError(f"ExtraScores: residuals must be true or false; got {str(residuals)[:40]!r}")
        self.n_features, self.n_labels, self.residuals = n_features, n_labels, residuals
        self.knn_weight, self.similarity_power = float(knn_weight), float(similarity_power)
        self.idf_power, self.rare_label_boost = float(idf_power), float(rare_label_boost)
        self.label_trees = nn.ModuleList(LabelTree(n_features, n_labels, **config) for config in label_trees)
        self.tree_weight = float(tree_weight)
        for name, buffer in (
            ("row_offsets", torch.zeros(rows + 1, dtype=torch.int64)),
            ("row_ids", torch.zeros(entries, dtype=id_dtype(n_features))),
            ("row_values", torch.zeros(entries, dtype=torch.float16)),
            ("label_offsets", torch.zeros(rows + 1, dtype=torch.int64)),
            ("label_ids", torch.zeros(labels, dtype=id_dtype(n_labels))),
        ):
            self.register_buffer(name, buffer)
        self._forget_tables()

    def _forget_tables(self) -> None:
        self._vote_tables: tuple[KnnSearch, CsrArray] | None = None
        self._residual_tables: tuple[tuple[int, ...], LinearEncoder, KnnSearch] | None = None

    @classmethod
    def from_rows(
        cls, X: CsrArray, Y: CsrArray, *, trees: Sequence[LabelTree] = (), knn_weight: float = 0.0, **settings: Any
    ) -> Self:
        """Pack training rows and label sets; without neighbours none are kept.  Shapes: (n, f), (n, L)"""
        if not knn_weight:
            X, Y = X[:0], Y[:0]
        configs = [tree.config() for tree in trees]
        sizes: Any = {"rows": X.shape[0], "entries": X.nnz, "labels": Y.nnz}
        made = cls(X.shape[1], Y.shape[1], knn_weight=knn_weight, label_trees=configs, **sizes, **settings)
        made.label_trees = nn.ModuleList(trees)
        made.row_offsets, made.label_offsets = (torch.from_numpy(A.indptr.astype(np.int64)) for A in (X, Y))
        made.row_ids, made.label_ids = pack_ids(X), pack_ids(Y)
        made.row_values.copy_(torch.from_numpy(np.asarray(X.data, np.float32)))
        return made

    def with_rows(self, X: CsrArray, Y: CsrArray) -> Self:
        """The same with more rows as neighbours; the trees stay as they are.  Shapes: (n, f), (n, L)"""
        if not self.knn_weight:
            return self
        rows, labels = (csr_array(vstack(pair)) for pair in zip(self.training_rows(), (X, Y), strict=True))
        settings = ("knn_weight", "similarity_power", "idf_power", "rare_label_boost", "tree_weight", "residuals")
        return self.from_rows(rows, labels, trees=self.trees(), **{name: getattr(self, name) for name in settings})

    @property
    def adds_to_output(self) -> bool:
        """Whether residuals of neighbours are added to the output of the network (`add_to_output`)."""
        return self.residuals and self.knn_weight > 0

    def add_to_output(
        self, h: Tensor, examples: Examples, rows: RowIndex, network: Network, head: Head, order: IntArray | None = None
    ) -> Tensor:
        """Outputs of a network for some rows, with the mean residuals of their neighbours, where these are added.

        order   the label of each of the head's outputs, where the head orders labels differently

        Shapes: h (n, d) -> (n, d)
        """
        if not self.adds_to_output:
            return h
        encoder, search = self.residual_tables(network, head, order)
        X = normalise_rows(checked_csr(feature_rows(examples, rows, self.n_features), "X", self.n_features))
        term = encoder.knn_term(search(X), self.similarity_power, self.knn_weight)
        return h + torch.from_numpy(encoder.sum_terms([term], X.shape[0])).to(h)

    def prepare(self, network: Network, head: Head, order: IntArray | None = None) -> None:
        """Build the tables of neighbours; called before several threads predict."""
        if self.adds_to_output:
            self.residual_tables(network, head, order)
        elif self.knn_weight:
            self.vote_tables()

    def residual_tables(
        self, network: Network, head: Head, order: IntArray | None = None
    ) -> tuple[LinearEncoder, KnnSearch]:
        """The table of residuals and the search for neighbours, built again only where the linear path has changed."""
        path = solved_path(network, head)
        version = tuple(number for tensor in path for number in (tensor.data_ptr(), _version(tensor)))
        if self._residual_tables is None or self._residual_tables[0] != version:
            X, Y = self.training_rows()
            W, bias = (tensor.detach().float().cpu().contiguous().numpy() for tensor in path)
            targets = weighted_labels(Y, self.rare_label_boost)
            targets = targets if order is None else csr_array(targets[:, order])
            encoder = LinearEncoder(quantised(W), bias, head.ridge_codebook(), X, targets)
            search = encoder.build_knn_search(self.idf_power, with_forest=False)
            assert search is not None  # `check_loaded` refuses neighbours without rows
            self._residual_tables = version, encoder, search
        return self._residual_tables[1:]

    def added_scores(self, examples: Examples, rows: RowIndex) -> tuple[FloatArray, IntArray] | None:
        """What is added to the scores of some labels, 0 or larger, and these labels, -1 for none; None for nothing.

        Shapes: -> (n, m), (n, m)
        """
        if self.adds_to_output and not self.label_trees:
            return None
        return self.label_scores(feature_rows(examples, rows, self.n_features))

    def label_scores(self, X: CsrArray) -> tuple[FloatArray, IntArray]:
        """As `added_scores`, for rows of features.  Shapes: (n, f) -> (n, m), (n, m)"""
        X = normalise_rows(checked_csr(X, "X", self.n_features))
        terms: list[CsrArray] = []
        if self.knn_weight and not self.residuals:
            search, weighted = self.vote_tables()
            votes = sum_votes(search(X), weighted, self.similarity_power)
            terms.append(csr_array(votes * np.float32(self.knn_weight)))
        if self.label_trees:
            found = unpadded(*search_trees(self.trees(), X), self.n_labels)
            terms.append(csr_array(found * np.float32(self.tree_weight)))
        return padded(canonical_csr(terms[0] + terms[1] if len(terms) == 2 else terms[0]))

    def vote_tables(self) -> tuple[KnnSearch, CsrArray]:
        """The search for neighbours of rows of norm 1, and what each training row votes, built once."""
        if self._vote_tables is None:
            X, Y = self.training_rows()
            index = KnnIndex(X, idf_weights(column_counts(X), X.shape[0], self.idf_power))
            self._vote_tables = partial(index.search, k=N_NEIGHBOURS), weighted_labels(Y, self.rare_label_boost)
        return self._vote_tables

    def trees(self) -> list[LabelTree]:
        """The label trees."""
        return [tree for tree in self.label_trees if isinstance(tree, LabelTree)]

    def training_rows(self) -> tuple[CsrArray, CsrArray]:
        """The stored training rows and label sets, in float32.  Shapes: -> (n, f), (n, L)"""
        n = len(self.row_offsets) - 1
        X = self.row_values.float().cpu().numpy(), unpack_ids(self.row_ids), self.row_offsets.cpu().numpy()
        ones = np.ones(len(self.label_ids), np.float32)
        Y = ones, unpack_ids(self.label_ids), self.label_offsets.cpu().numpy()
        return (
            from_arrays(*X, (n, self.n_features), canonical=False),
            from_arrays(*Y, (n, self.n_labels), canonical=False),
        )

    @property
    def compressed_tensors(self) -> tuple[str, ...]:
        """The names of the tensors that a model file compresses."""
        trees = [f"label_trees.{i}.{name}" for i in range(len(self.label_trees)) for name in COMPRESSED_TREE_TENSORS]
        return (*ROW_TENSORS, *trees)

    def describe(self) -> str:
        """A short description."""
        what = "residuals" if self.residuals else "votes"
        parts = [f"kNN {what} of {len(self.row_offsets) - 1:,} training rows"] if self.knn_weight else []
        return " and ".join(parts + ([f"{len(self.label_trees)} label trees"] if self.label_trees else []))

    def config(self) -> dict[str, Any]:
        """JSON values that, as keyword arguments of the class, build it again."""
        return {
            "n_features": self.n_features,
            "n_labels": self.n_labels,
            "rows": len(self.row_offsets) - 1,
            "entries": len(self.row_ids),
            "labels": len(self.label_ids),
            "knn_weight": self.knn_weight,
            "similarity_power": self.similarity_power,
            "idf_power": self.idf_power,
            "rare_label_boost": self.rare_label_boost,
            "label_trees": [tree.config() for tree in self.trees()],
            "tree_weight": self.tree_weight,
            **({"residuals": True} if self.residuals else {}),
        }

    def check_loaded(self) -> None:
        """Raise an OptionError unless rows are CSR matrices and all trees are trees: a file may hold anything."""
        for name, size in (("row", self.n_features), ("label", self.n_labels)):
            offsets, ids = getattr(self, f"{name}_offsets").numpy(), unpack_ids(getattr(self, f"{name}_ids"))
            # Neighbours are compared, not subtracted: the difference of two int64 may not fit.
            if offsets[0] != 0 or offsets[-1] != len(ids) or (offsets[1:] < offsets[:-1]).any():
                raise OptionError(f"ExtraScores: {name}_offsets must ascend from 0 to {len(ids)}, the entries")
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
                raise OptionError(f"ExtraScores: {name}_ids must be from 0 to {size - 1}")
        if self.knn_weight and len(self.row_offsets) < 2:
            raise OptionError("ExtraScores: neighbours need a training row")
        if not (self.knn_weight or self.label_trees):
            raise OptionError("ExtraScores: wants neighbours or label trees; got neither")
        for tree in self.trees():
            tree.check_loaded()

    def working_bytes(self) -> int:
        """The memory, about, of the tables that are built from the stored rows and trees before the first scores."""
        total = ENTRY_BYTES * len(self.row_ids) + LABEL_BYTES * len(self.label_ids)
        return total + ROW_BYTES * len(self.row_offsets) + sum(tree.working_bytes() for tree in self.trees())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._forget_tables()  # they were made of the tensors before
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self._forget_tables()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_vote_tables": None, "_residual_tables": None}  # copies and pickles build their own


def solved_path(network: Network, head: Head) -> tuple[Tensor, Tensor]:
    """W and b of the linear path whose residuals are added; an OptionError for networks and heads without one.

    Shapes: -> (f, d), (d)
    """
    path = network.linear_path()
    if path is None or head.weight is not None or head.loss_name != "squares":
        raise OptionError(
            "ExtraScores: residuals want a network with a linear path that gives the output itself, and the loss "
            f"squares; got {network.describe()} and {head.describe()} with the loss {head.loss_name}; take votes"
        )
    return path


def _version(tensor: Tensor) -> int:
    """How often a tensor was changed in place; tensors of inference mode do not count it."""
    return 0 if tensor.is_inference() else tensor._version


def weighted_labels(Y: CsrArray, rare_label_boost: float) -> CsrArray:
    """What a row with these labels votes.  Shapes: (n, L) -> (n, L)"""
    weights = rare_label_weights(np.bincount(Y.indices, minlength=Y.shape[1]), rare_label_boost)
    return from_arrays(weights[Y.indices], Y.indices, Y.indptr, Y.shape, canonical=False)


def sum_votes(neighbours: tuple[NDArray[np.int16], IntArray], weighted: CsrArray, similarity_power: float) -> CsrArray:
    """The mean vote of neighbours, weighted by powers of similarities.  Shapes: 2 x (m, k), (n, L) -> (m, L)"""
    similarities, ids = neighbours
    m, k = ids.shape
    weights = similarity_weights(similarities, similarity_power)
    chosen = from_arrays(
        weights.ravel(), ids.ravel(), np.arange(0, m * k + 1, k), (m, weighted.shape[0]), canonical=False
    )
    return csr_array(chosen @ weighted)


def feature_rows(examples: Examples, rows: RowIndex, n_features: int) -> CsrArray:
    """Some rows of examples as features; of texts, the bag of their tokens with 1 + log of counts.  -> (n, f)"""
    if isinstance(examples, ExampleRows):
        return feature_rows(examples.examples, examples.rows[rows], n_features)
    if isinstance(examples, SparseExamples):
        return examples.csr(rows)
    if isinstance(examples, TextExamples):
        return examples.features.csr(rows)
    if not isinstance(examples, TokenExamples):
        raise OptionError(f"ExtraScores: wants rows of features or tokens; got {type(examples).__name__}")
    at, starts = row_entries(examples.offsets, rows)
    counts = np.ones(len(at), np.float32), examples.ids[at], np.append(starts, len(at))
    bag = canonical_csr(from_arrays(*counts, (len(rows), n_features), canonical=False))
    bag.data = 1 + np.log(bag.data)
    return bag


def padded(scores: CsrArray) -> tuple[FloatArray, IntArray]:
    """Sparse scores as arrays of one width: values, and labels, -1 for none.  Shapes: (n, L) -> 2 x (n, m)"""
    counts = np.diff(scores.indptr)
    width = max(1, int(counts.max(initial=0)))
    within = np.arange(width) < counts[:, None]
    values, labels = np.zeros(within.shape, np.float32), np.full(within.shape, -1, np.int64)
    values[within], labels[within] = scores.data, scores.indices
    return values, labels


def unpadded(values: FloatArray, labels: IntArray, n_labels: int) -> CsrArray:
    """The inverse of `padded`.  Shapes: 2 x (n, m) -> sparse (n, L)"""
    known = labels >= 0
    indptr = np.append(0, np.cumsum(known.sum(1)))
    return from_arrays(values[known], labels[known], indptr, (len(labels), n_labels), canonical=False)
