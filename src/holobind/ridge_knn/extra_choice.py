"""The choice of what is added to a trained network (`ExtraScores`), on held-out rows by nDCG@5.

Residuals of neighbours, and label trees beside them, are chosen as in the closed form (`choose_residuals`); votes have
weights in units of the network's own scores (`choose_extra_scores`).
"""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holobind._types import CsrArray, IntArray, ProgressCallback
from holobind.codebooks import Codebook
from holobind.data.csr import column_counts, idf_weights
from holobind.heads import Head
from holobind.heads.added_scores import AddedScores
from holobind.metrics import ndcg_at_k
from holobind.ridge_knn.extra_scores import ExtraScores, padded, sum_votes, unpadded, weighted_labels
from holobind.ridge_knn.fit_label_tree import fit_label_tree
from holobind.ridge_knn.knn_choice import (
    IDF_POWERS,
    MIDDLE_KNN_WEIGHT,
    MIN_IDF_GAIN,
    SIMILARITY_POWERS,
    HeldOutOutputs,
    KnnChoice,
    choose_knn,
)
from holobind.ridge_knn.knn_index import N_NEIGHBOURS, KnnIndex
from holobind.ridge_knn.label_tree import LabelTree, search_trees
from holobind.ridge_knn.tree_choice import (
    DEFAULT_TREE_WEIGHT,
    N_LABEL_TREES,
    TREE_WEIGHTS,
    Added,
    boosted_searches,
    choose_trees,
    min_tree_gain,
)

K = 5
# In units of the mean distance of a row's best score and its 30th, which differs from loss to loss.
VOTE_WEIGHTS = (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 16.0)
MIDDLE_VOTE_WEIGHT = 3.0  # with which idf_power and similarity_power are chosen
TREE_UNITS = 2.0  # the weights of trees in the closed form, whose scores are twice as far apart


@dataclass(frozen=True)
class ExtraChoice:
    """Settings of `ExtraScores`, the tree that was fitted to choose them, and nDCG@5 in percent of held-out rows."""

    knn_weight: float
    similarity_power: float = 2.0
    idf_power: float = 0.0
    tree_weight: float = 0.0
    n_trees: int = 0
    residuals: bool = False
    tree: LabelTree | None = None
    ndcg_without: float | None = None
    ndcg: float | None = None

    def scores(
        self,
        X: CsrArray,
        Y: CsrArray,
        rare_label_boost: float,
        seed: int,
        on_progress: ProgressCallback | None = None,
        *,
        n_trees: int | None = None,
    ) -> ExtraScores | None:
        """The scores by these rows, whose trees are fitted but for the one there is; None where nothing is added.

        n_trees   by default the chosen number

        Shapes: X (n, f) of norm 1, Y (n, L)
        """
        wanted = self.n_trees if n_trees is None else min(n_trees, self.n_trees)
        trees = [] if self.tree is None else [self.tree][:wanted]
        trees += [fit_label_tree(X, Y, seed=seed + i, on_progress=on_progress) for i in range(len(trees), wanted)]
        boost = 0.0 if self.tree is None else self.tree.rare_label_boost
        for tree in trees:
            tree.set_rare_label_boost(column_counts(Y), boost)
        if not (self.knn_weight or trees):
            return None
        return ExtraScores.from_rows(
            X,
            Y,
            trees=trees,
            knn_weight=self.knn_weight,
            similarity_power=self.similarity_power,
            idf_power=self.idf_power,
            rare_label_boost=rare_label_boost,
            tree_weight=self.tree_weight if trees else 0.0,
            residuals=self.residuals,
        )

    def summary(self) -> dict[str, Any]:
        """The choice as JSON values for a model's metadata."""
        rounded = {name: None if value is None else round(value, 3) for name, value in self._scores().items()}
        return {
            "neighbours": "residuals" if self.residuals else "votes",
            "knn_weight": self.knn_weight,
            "similarity_power": self.similarity_power,
            "idf_power": self.idf_power,
            "tree_weight": self.tree_weight,
            **rounded,
        }

    def _scores(self) -> dict[str, float | None]:
        return {"ndcg_without": self.ndcg_without, "ndcg": self.ndcg}


def default_choice(knn_weight: float | None, label_trees: int | None, residuals: bool = False) -> ExtraChoice:
    """The settings where no rows are held out."""
    weight = MIDDLE_KNN_WEIGHT if knn_weight is None else knn_weight
    tree_weight, n_trees = DEFAULT_TREE_WEIGHT if label_trees else 0.0, label_trees or 0
    return ExtraChoice(weight, tree_weight=tree_weight, n_trees=n_trees, residuals=residuals)


def choose_residuals(
    codebook: Codebook,
    outputs: HeldOutOutputs,
    X_held: CsrArray,
    kept: tuple[CsrArray, CsrArray],
    *,
    head_labels: IntArray | None = None,
    knn_weight: float | None = None,
    label_trees: int | None = None,
    try_trees: bool = False,
    rare_label_boost: float = 0.0,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> ExtraChoice:
    """Choose what is None, as in the closed form: the neighbours, whose residuals are added, then label trees.

    outputs      of held-out rows: `linear` is the whole output of the network, and labels have the head's ids
    X_held, kept   rows of norm 1: those to validate on, and those to fit a tree to, with their labels
    other arguments as of `choose_extra_scores`

    Shapes: X_held (m, f), kept (n, f), (n, L)
    """
    k = min(K, codebook.n_labels)
    without = float(ndcg_at_k(outputs.Y, codebook.top_k(outputs.linear, k)[1].numpy())[-1])
    knn, best = KnnChoice(0.0, 2.0, 0.0, 0.0), without
    if outputs.residuals and knn_weight != 0:
        knn, _ = choose_knn(codebook, [outputs], knn_weight)
        best = knn.ndcg or 0.0
    choice = ExtraChoice(
        knn.knn_weight, knn.similarity_power, knn.idf_power, residuals=True, ndcg_without=without, ndcg=best
    )
    if (label_trees or (label_trees is None and try_trees)) and kept[1].nnz:
        tree = fit_label_tree(*kept, seed=seed, on_progress=on_progress)

        def search() -> Added:
            values, labels = search_trees([tree], X_held)
            if head_labels is not None:
                labels = np.where(labels >= 0, head_labels[np.maximum(labels, 0)], -1)
            return values, labels

        searches = boosted_searches(tree, kept[1], rare_label_boost, search)
        found = choose_trees(codebook, outputs.output(knn), outputs.Y, searches, may_be_none=label_trees is None)[0]
        tree.set_rare_label_boost(column_counts(kept[1]), found.rare_label_boost)
        if found.weight:
            n_trees = label_trees or N_LABEL_TREES
            choice = replace(choice, tree_weight=found.weight, n_trees=n_trees, tree=tree, ndcg=found.ndcg)
    return choice


def choose_extra_scores(
    head: Head,
    h: Tensor,
    held: tuple[CsrArray, CsrArray],
    kept: tuple[CsrArray, CsrArray],
    *,
    head_labels: IntArray | None = None,
    knn_weight: float | None = None,
    label_trees: int | None = None,
    try_trees: bool = False,
    rare_label_boost: float = 0.0,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> ExtraChoice:
    """Choose what is None: first the neighbours, which vote, then whether a label tree is better beside them.

    h            outputs of the network for held-out rows
    held, kept   rows of norm 1 and labels: those to validate on, and those that vote
    head_labels  the head's id of each label, where it has another order
    label_trees  their number; None: 4 if held-out rows gain by one, which is tried with `try_trees` alone

    Shapes: h (m, in), held (m, f), (m, L), kept (n, f), (n, L)
    """
    (X_held, Y_held), (X, Y) = held, kept
    cached = _FixedTopK(head, h)
    unit = cached.unit()

    def ndcg(added: CsrArray | None) -> float:
        if added is None:
            top = cached.found
        else:
            values, labels = (torch.from_numpy(array) for array in padded(added))
            if head_labels is not None:
                labels = torch.where(labels >= 0, torch.from_numpy(head_labels)[labels.clamp(min=0)], -1)
            top = AddedScores(cached, values, labels).top_k(h, min(K, head.n_labels))[1]  # type: ignore[arg-type]
        ids = top.numpy()[:, : min(K, head.n_labels)]
        return float(ndcg_at_k(Y_held, ids if head_labels is None else np.argsort(head_labels)[ids])[-1])

    without = ndcg(None)
    choice, best, votes = ExtraChoice(0.0, ndcg_without=without, ndcg=without), without, None
    if knn_weight != 0 and X.shape[0]:
        weighted = weighted_labels(Y, rare_label_boost)
        counts, n_rows = column_counts(X), X.shape[0]
        found = {
            power: KnnIndex(X, idf_weights(counts, n_rows, power)).search(X_held, N_NEIGHBOURS) for power in IDF_POWERS
        }
        settings = list(product(IDF_POWERS, SIMILARITY_POWERS))
        voted = {(idf, power): sum_votes(found[idf], weighted, power) for idf, power in settings}
        middle = MIDDLE_VOTE_WEIGHT * unit if knn_weight is None else knn_weight
        tried = {setting: ndcg(voted[setting] * np.float32(middle)) for setting in settings}
        idf_power, similarity_power = max(tried, key=lambda s: tried[s] - MIN_IDF_GAIN * (s[0] > 0))
        votes = voted[idf_power, similarity_power]
        weights = [unit * weight for weight in VOTE_WEIGHTS] if knn_weight is None else [knn_weight]
        by_weight = {weight: ndcg(votes * np.float32(weight) if weight else None) for weight in weights}
        weight = max(by_weight, key=lambda w: by_weight[w])
        best = by_weight[weight]
        choice = replace(choice, knn_weight=weight, similarity_power=similarity_power, idf_power=idf_power, ndcg=best)
        votes = votes * np.float32(weight) if weight else None
    if (label_trees or (label_trees is None and try_trees)) and Y.nnz:
        tree = fit_label_tree(X, Y, seed=seed, on_progress=on_progress)
        scores = unpadded(*search_trees([tree], X_held), head.n_labels)
        by_weight = {}
        for tree_weight in (TREE_UNITS * unit * weight for weight in TREE_WEIGHTS):
            added = scores * np.float32(tree_weight)
            by_weight[tree_weight] = ndcg(added if votes is None else votes + added)
        weight = max(by_weight, key=lambda w: by_weight[w])
        if label_trees or by_weight[weight] - best >= min_tree_gain(head.ridge_codebook()):
            n_trees = label_trees or N_LABEL_TREES
            choice = replace(choice, tree_weight=weight, n_trees=n_trees, tree=tree, ndcg=by_weight[weight])
    return choice


class _FixedTopK:
    """A head whose best labels of fixed outputs are searched once, for `AddedScores`."""

    def __init__(self, head: Head, h: Tensor) -> None:
        self.head, self.n_labels = head, head.n_labels
        with torch.inference_mode():
            self.scores, self.found = head.top_k(h, min(N_NEIGHBOURS, head.n_labels))

    def unit(self) -> float:
        """The mean distance of a row's best score and its 30th; 1 where there is none."""
        return float((self.scores[:, 0] - self.scores[:, -1]).mean()) or 1.0

    def top_k(self, h: Tensor, k: int, *, labels: tuple[int, int] | None = None) -> tuple[Tensor, Tensor]:
        return self.scores[:, :k].contiguous(), self.found[:, :k].contiguous()

    def raised_top_k(self, *arguments: Any, **options: Any) -> None:
        """The best labels are known: to search them again with raised scores would take longer."""

    def scores_of(self, h: Tensor, ids: Tensor) -> Tensor:
        with torch.inference_mode():
            return self.head.scores_of(h, ids)
