"""Trees of linear classifiers over labels, as in Parabel (Prabhu et al. 2018) and Bonsai (Khandagale et al. 2020).

    log P(l | x) = - sum over the nodes of the path from the root to l of max(0, 1 - w.x - b)^2

Each node but the root has a classifier (w, b), which is fitted with the squared hinge loss on the training rows of its
parent: the rows that have a label below it. `fit_label_tree` builds trees. A search keeps the most probable nodes of
each level (a beam), and of these the ones that are not far less probable than the best node of the level above, so it
reads a small part of the tree.

Rare labels may count more (`rare_label_boost`): a label's part of the score is multiplied by

    g_l = (n / n_l)^rare_label_boost        n_l rows have label l; n: the geometric mean of n_l over all labels of rows

as the scores of the ridge regression are by the lengths of its target vectors (`network`).

Weights are sparse. They are stored by parent and by feature: a feature of a parent has entries (child, weight). The
weights of a child are integers of eight bits and one scale.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holobind._processes import Processes
from holobind._storage import check_tensors
from holobind._threads import by_rows
from holobind._types import CsrArray, FloatArray, IntArray
from holobind.data.csr import checked_csr
from holobind.errors import OptionError
from holobind.ridge_knn._module import FixedDtypeModule
from holobind.ridge_knn._tree_kernels import (
    DENSE_UNIT,
    MAX_CHILDREN,
    mean_log_probabilities,
    pack_entries,
    search_tree,
)

MAX_LEVELS = 16
BEAM = 10  # nodes of each level that a search goes on from, at most
MAX_LOG_RATIO = 3.0  # from no node that is so much less probable than the best one of the level above
N_FOUND = 20  # labels that a search returns
MIN_LOG_PROBABILITY = -6.0  # smaller ones count as this one, and so does that of every label that is not found
ROWS_TOGETHER = 4096  # that a search takes through the levels
TABLE_FACTOR = 16  # a parent has a table where it has at least one in so many features
MAX_TABLE_BYTES = 2**27  # of all tables of a tree
DENSE_FACTOR = 8  # a feature of a parent has a dense row where at least one in so many weights of it is not 0
MAX_STORED = 2**31 - 1  # nodes, and features of nodes: offsets are stored in 32 bits
COMPRESSED_TREE_TENSORS = ("features", "entry_counts", "entry_children", "entry_levels")


class LabelTree(FixedDtypeModule):
    """A tree: inner nodes are numbered level by level from the root on, the children of one after those of another.

    Leaves come after the inner nodes; all of them are at the same level.

    n_features, n_labels      of rows and of the model
    parents, leaves           numbers of nodes with children (with the root) and without
    n_levels                  of nodes below the root
    n_parent_features         number of pairs of a parent and a feature that has a weight there
    n_entries                 number of weights
    rare_label_boost          power of n / n_l, by which scores of label l are multiplied
    """

    child_offsets: Tensor  # (parents + 1) int32: child j is node j + 1
    leaf_labels: Tensor  # (leaves) int32
    feature_offsets: Tensor  # (parents + 1) int32
    features: Tensor  # (n_parent_features) int32, ascending for each parent
    entry_counts: Tensor  # (n_parent_features) int16: entries of a feature of a parent
    entry_children: Tensor  # (n_entries) uint8: a child, counted from the parent's first one
    entry_levels: Tensor  # (n_entries) int8: weights in units of the child's scale
    scales: Tensor  # (parents + leaves - 1) float16
    biases: Tensor  # (parents + leaves - 1) float16
    leaf_weights: Tensor  # (leaves) float16, only with a rare_label_boost: g_l

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        *,
        parents: int,
        leaves: int,
        n_levels: int,
        n_parent_features: int,
        n_entries: int,
        rare_label_boost: float = 0.0,
    ) -> None:
        super().__init__()
        if not (np.isfinite(rare_label_boost) and rare_label_boost >= 0):
            raise OptionError(
                f"LabelTree: rare_label_boost must be a finite number, 0 or larger; got {rare_label_boost}"
            )
        if min(n_features, n_labels, parents, leaves) < 1 or min(n_parent_features, n_entries) < 0:
            raise OptionError("LabelTree: sizes must be positive, and numbers of weights not negative")
        if max(n_features, n_labels, parents + leaves, n_parent_features) > MAX_STORED:
            raise OptionError(f"LabelTree: sizes must be at most {MAX_STORED:,}")
        if not 1 <= n_levels <= MAX_LEVELS:
            raise OptionError(f"LabelTree: n_levels must be from 1 to {MAX_LEVELS}; got {n_levels}")
        self.n_features, self.n_labels, self.n_levels = n_features, n_labels, n_levels
        for name, shape, dtype in (
            ("child_offsets", parents + 1, torch.int32),
            ("leaf_labels", leaves, torch.int32),
            ("feature_offsets", parents + 1, torch.int32),
            ("features", n_parent_features, torch.int32),
            ("entry_counts", n_parent_features, torch.int16),
            ("entry_children", n_entries, torch.uint8),
            ("entry_levels", n_entries, torch.int8),
            ("scales", parents + leaves - 1, torch.float16),
            ("biases", parents + leaves - 1, torch.float16),
        ):
            self.register_buffer(name, torch.zeros(shape, dtype=dtype))
        self.rare_label_boost = float(rare_label_boost)
        if rare_label_boost:
            self.register_buffer("leaf_weights", torch.ones(leaves, dtype=torch.float16))
        self.uses_tables = True  # up to MAX_TABLE_BYTES; without, a search takes longer
        self._arrays: tuple[Any, ...] | None = None

    def config(self) -> dict[str, Any]:
        """JSON values that, as keyword arguments after `n_features` and `n_labels`, build it again."""
        return {
            "parents": len(self.child_offsets) - 1,
            "leaves": len(self.leaf_labels),
            "n_levels": self.n_levels,
            "n_parent_features": len(self.features),
            "n_entries": len(self.entry_levels),
            **({"rare_label_boost": self.rare_label_boost} if self.rare_label_boost else {}),
        }

    def set_rare_label_boost(self, counts: IntArray, boost: float) -> None:
        """Multiply scores of labels by powers of their numbers of rows, in place of what was set before.

        Shapes: counts (L)
        """
        self._buffers.pop("leaf_weights", None)
        self.rare_label_boost = float(boost)
        if boost:
            n = np.maximum(counts, 1).astype(np.float64)
            log_mean = float((counts * np.log(n)).sum() / max(int(counts.sum()), 1))
            weights = np.exp(boost * (log_mean - np.log(n)))[self.leaf_labels.cpu().numpy()]
            self.register_buffer("leaf_weights", torch.from_numpy(weights).to(self.biases))

    @classmethod
    def of_tensors(cls, n_features: int, n_labels: int, config: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        """A tree from its `config()` and its tensors, which may come from a file: all are checked."""
        with torch.device("meta"):
            tree = cls(n_features, n_labels, **config)
        check_tensors("tree", tree.state_dict(), tensors)
        tree.load_state_dict(tensors, assign=True)
        tree.check_loaded()
        return tree

    def check_loaded(self) -> None:
        """Raise OptionError unless every path ends at a leaf of the last level, and all indices are in their ranges."""
        parents, leaves = len(self.child_offsets) - 1, len(self.leaf_labels)
        children, features = self.child_offsets.numpy(), self.feature_offsets.numpy()
        _check_offsets("child_offsets", children, parents - 1 + leaves)
        _check_offsets("feature_offsets", features, len(self.features))
        sizes = np.diff(children)
        if sizes.max(initial=0) > MAX_CHILDREN:
            raise OptionError(f"LabelTree: a node has at most {MAX_CHILDREN} children; got {sizes.max()}")
        first, last = 0, 1  # the parents of a level
        for _ in range(self.n_levels - 1):
            first, last = int(children[first]) + 1, int(children[last]) + 1
            if last > parents:
                break
        if last != parents or int(children[first]) + 1 != parents:
            raise OptionError(f"LabelTree: the leaves must be {self.n_levels} levels below the root")
        if not _in_range(self.leaf_labels, self.n_labels) or len(self.leaf_labels.unique()) < leaves:
            raise OptionError(f"LabelTree: leaf_labels must be different ones from 0 to {self.n_labels - 1}")
        if not _in_range(self.features, self.n_features):
            raise OptionError(f"LabelTree: features must be from 0 to {self.n_features - 1}")
        ids = self.features.numpy()
        starts = np.zeros(len(ids) + 1, bool)
        starts[features[:-1]] = True
        if not (starts[1:-1] | (ids[1:] > ids[:-1])).all():
            raise OptionError("LabelTree: the features of a node must ascend")
        counts = self.entry_counts.numpy().astype(np.int64)
        if (counts < 0).any() or counts.sum() != len(self.entry_levels):
            raise OptionError(f"LabelTree: entry_counts must add up to {len(self.entry_levels)}")
        n_children = np.repeat(np.repeat(sizes, np.diff(features)), counts)
        if (self.entry_children.numpy() >= n_children).any():
            raise OptionError("LabelTree: entry_children must be below the number of a node's children")
        if not (torch.isfinite(self.scales).all() and torch.isfinite(self.biases).all()):
            raise OptionError("LabelTree: scales and biases must be finite")
        if self.rare_label_boost and not bool((torch.isfinite(self.leaf_weights) & (self.leaf_weights >= 0)).all()):
            raise OptionError("LabelTree: leaf_weights must be finite, 0 or larger")

    def search(self, X: CsrArray) -> tuple[FloatArray, IntArray]:
        """The log-probabilities of the most probable labels of each row, best first, and the labels.

        Where the search found fewer than N_FOUND labels, -inf and -1 come last.

        Shapes: (n, f) -> (n, N_FOUND), (n, N_FOUND)
        """
        scores, leaves = self._search_leaves(X)
        return scores, self._labels_of(leaves)

    def _labels_of(self, leaves: IntArray) -> IntArray:
        """The labels of leaves, -1 for none."""
        labels: IntArray = np.append(self.leaf_labels.cpu().numpy(), -1)[leaves]
        return labels

    def _weights_of(self, leaves: IntArray) -> FloatArray:
        """By what the scores of leaves are multiplied."""
        if not self.rare_label_boost:
            return np.ones(leaves.shape, np.float32)
        weights: FloatArray = np.append(self.leaf_weights.cpu().numpy(), 0).astype(np.float32)[leaves]
        return weights

    def _search_leaves(self, X: CsrArray) -> tuple[FloatArray, IntArray]:
        """The log-probabilities of the most probable leaves, and the leaves.  Shapes: as `search`"""
        X = checked_csr(X, "LabelTree: X", self.n_features).astype(np.float32, copy=False)
        arrays, limits = self._prepared(), (self.n_levels, BEAM, np.float32(MAX_LOG_RATIO))
        scores = np.empty((X.shape[0], N_FOUND), np.float32)
        leaves = np.empty((X.shape[0], N_FOUND), np.int64)

        def search_range(first: int, last: int) -> None:
            for start in range(first, last, ROWS_TOGETHER):
                rows = slice(start, min(start + ROWS_TOGETHER, last))
                indptr = X.indptr[rows.start : rows.stop + 1]
                search_tree(indptr, X.indices, X.data, *arrays, *limits, scores[rows], leaves[rows])

        by_rows(search_range, len(scores))
        return scores, leaves

    def release(self) -> None:
        """Free the arrays that the search made; the next one makes them again."""
        self._arrays = None

    def _prepared(self) -> tuple[Any, ...]:
        """The arrays that the compiled search reads, made once."""
        if self._arrays is None:
            offsets, features = self.feature_offsets.cpu().numpy().astype(np.int64), self.features.cpu().numpy()
            starts, packed, dense = self._packed_entries()
            parents = self._parents_with_tables()
            tables = np.full((len(parents), self.n_features), -1, np.int32)
            for table, parent in zip(tables, parents, strict=True):
                own = slice(*offsets[parent : parent + 2])
                table[features[own]] = starts[own]
            table_of = np.full(len(offsets) - 1, -1, np.int64)
            table_of[parents] = np.arange(len(parents))
            self._arrays = (
                self.n_features,
                tables,
                table_of,
                self.child_offsets.cpu().numpy().astype(np.int64),
                offsets,
                features,
                starts,
                packed,
                dense,
                self.scales.float().cpu().numpy(),
                self.biases.float().cpu().numpy(),
            )
        return self._arrays

    def _packed_entries(self) -> tuple[IntArray, NDArray[np.uint16], NDArray[np.int8]]:
        """The arrays `starts`, `packed` and `dense` of `search_tree`."""
        counts = self.entry_counts.cpu().numpy()
        units = -(-np.diff(self.child_offsets.cpu().numpy()) // DENSE_UNIT)
        of_features = np.repeat(units * DENSE_UNIT, np.diff(self.feature_offsets.cpu().numpy()))
        widths = np.zeros(len(counts), np.int32)
        widths[: len(of_features)] = of_features  # a tree that has no values yet has features without a parent
        is_dense = counts.astype(np.int32) * DENSE_FACTOR >= widths
        sparse = counts[~is_dense]
        starts = np.empty(len(counts), np.int64)
        packed = np.empty(len(sparse) + int(sparse.sum(dtype=np.int64)), np.uint16)
        dense = np.zeros(int(widths[is_dense].sum(dtype=np.int64)), np.int8)
        entries = self.entry_children.cpu().numpy(), self.entry_levels.cpu().numpy()
        pack_entries(counts, *entries, is_dense, widths, starts, packed, dense)
        return starts, packed, dense

    def _parents_with_tables(self) -> IntArray:
        """The parents for which a table says where each feature is: those of many features, as far as memory allows."""
        if not self.uses_tables or len(self.features) + len(self.entry_levels) > MAX_STORED:
            return np.empty(0, np.int64)
        sizes = np.diff(self.feature_offsets.cpu().numpy())
        largest = np.argsort(-sizes, kind="stable")[: max(MAX_TABLE_BYTES // (4 * self.n_features), 0)]
        return largest[sizes[largest] * TABLE_FACTOR >= self.n_features].astype(np.int64)

    def working_bytes(self) -> int:
        """The memory, at most, of the arrays that a search reads besides the tensors, and of making them."""
        tables = min(MAX_TABLE_BYTES, 4 * TABLE_FACTOR * len(self.features))
        entries = 24 * len(self.features) + (2 + DENSE_FACTOR) * len(self.entry_levels)
        return tables + entries + 4 * self.n_features + 8 * (3 * len(self.child_offsets) + len(self.scales))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._arrays = None
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self._arrays = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_arrays": None}


def shared_search(processes: Processes, trees: Sequence[LabelTree], X: CsrArray) -> tuple[FloatArray, IntArray]:
    """`search_trees`, each process for its share of the rows."""
    found = processes.by_rows(X.shape[0], lambda first, last: search_trees(trees, X[first:last]))
    return found[0], found[1]


def search_trees(trees: Sequence[LabelTree], X: CsrArray) -> tuple[FloatArray, IntArray]:
    """How far the log-probabilities of labels are above MIN_LOG_PROBABILITY, and the labels: 0 and -1 behind the last.

    The probability of a label is the mean over trees. Trees with a rare_label_boost multiply what is above by g_l. All
    values are 0 or larger; every other label has 0.

    Shapes: (n, f) -> (n, m), (n, m)
    """
    found = [tree._search_leaves(X) for tree in trees]
    log_probabilities = np.stack([scores for scores, _ in found])
    labels = np.stack([tree._labels_of(leaves) for tree, (_, leaves) in zip(trees, found, strict=True)])
    weights = np.stack([tree._weights_of(leaves) for tree, (_, leaves) in zip(trees, found, strict=True)])
    n, m = X.shape[0], len(trees) * N_FOUND
    merged = np.empty((n, m), np.int64)
    means, merged_weights = np.empty((n, m), np.float32), np.empty((n, m), np.float32)

    def merge(first: int, last: int) -> None:
        rows = np.s_[:, first:last]
        out = merged[first:last], means[first:last], merged_weights[first:last]
        mean_log_probabilities(labels[rows], log_probabilities[rows], weights[rows], *out)

    by_rows(merge, n)
    return np.maximum(means - np.float32(MIN_LOG_PROBABILITY), 0) * merged_weights, merged


def _check_offsets(name: str, offsets: IntArray, total: int) -> None:
    # Neighbours are compared, not subtracted: a difference may not fit.
    if offsets[0] != 0 or offsets[-1] != total or (offsets[1:] < offsets[:-1]).any():
        raise OptionError(f"LabelTree: {name} must ascend from 0 to {total}")


def _in_range(ids: Tensor, size: int) -> bool:
    return not len(ids) or bool(0 <= int(ids.min()) <= int(ids.max()) < size)
