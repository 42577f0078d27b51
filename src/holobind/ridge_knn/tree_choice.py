"""The choice of label trees on held-out rows: whether they are used, and the weight of their log-probabilities."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holobind._processes import ALONE, Processes
from holobind._types import CsrArray, FloatArray, IntArray
from holobind.codebooks import Codebook
from holobind.data.csr import column_counts
from holobind.heads.added_scores import AddedScores
from holobind.metrics import ndcg_at_k
from holobind.ridge_knn.candidates import Candidates, shared_top_k
from holobind.ridge_knn.label_tree import LabelTree

N_LABEL_TREES = 4
MIN_ROWS_FOR_TREES = 1000
TREE_WEIGHTS = (0.05, 0.1, 0.2, 0.3, 0.5)
TREE_BOOSTS = (0.0, 0.03, 0.06, 0.1)  # `rare_label_boost` of trees
DEFAULT_TREE_WEIGHT = 0.2  # where rows are too few to validate
MIN_TREE_GAIN = 0.1  # points of nDCG@5 by which scores must be better with a label tree
# The same for at most d labels: without trees their scores are exact, and prediction is several times as fast.
MIN_TREE_GAIN_OF_FEW_LABELS = 0.5

Added = tuple[FloatArray, IntArray]  # values that are added to the scores of labels, and these labels: (n, m) each


@dataclass(frozen=True)
class TreeChoice:
    """The weight of the label trees, 0 for none, and nDCG@5 of held-out rows with the best weight and without trees.

    Both are in percent. `rare_label_boost` is that of the trees.
    """

    weight: float
    ndcg: float
    ndcg_without: float
    rare_label_boost: float = 0.0


def suits_trees(n_rows: int) -> bool:
    """Whether there are rows enough to try label trees."""
    return n_rows >= MIN_ROWS_FOR_TREES


def min_tree_gain(codebook: Codebook) -> float:
    """Points of nDCG@5 by which scores of held-out rows must be better with a label tree."""
    return MIN_TREE_GAIN if codebook.n_labels > codebook.dim else MIN_TREE_GAIN_OF_FEW_LABELS


def choose_trees(
    codebook: Codebook,
    v: Tensor,
    Y: CsrArray,
    found: Mapping[float, Added],
    *,
    may_be_none: bool,
    processes: Processes = ALONE,
) -> tuple[TreeChoice, Added | None]:
    """The weight and boost of label trees with the best nDCG@5 on held-out rows, and what they then add to scores.

    found         what `search_trees` found for the rows with each boost
    may_be_none   whether the weight is 0 where rows gain less than `min_tree_gain`
    processes     that have the same outputs, and share their rows

    Shapes: v (n, d), Y (n, L), found 2 x (n, m)
    """
    k = min(5, codebook.n_labels)
    top = shared_top_k(processes, codebook, v, k)[1]
    without = float(ndcg_at_k(Y, top.numpy())[-1])
    tried: dict[tuple[float, float], float] = {}
    for boost, (values, labels) in found.items():
        # With any weight, the top k is among these labels: trees only raise scores (`AddedScores`).
        candidates = Candidates(torch.cat([torch.from_numpy(labels), top], 1), processes)
        scores = candidates.scores(codebook, v)
        raised = torch.from_numpy(np.pad(values, ((0, 0), (0, k)))).gather(1, candidates.order)
        for weight in TREE_WEIGHTS:
            best = candidates.best(scores + weight * raised, k).numpy()
            tried[boost, weight] = float(ndcg_at_k(Y, best)[-1])
    boost, weight = max(tried, key=lambda setting: tried[setting])
    ndcg = tried[boost, weight]
    if may_be_none and ndcg - without < min_tree_gain(codebook):
        return TreeChoice(0.0, ndcg, without), None
    values, labels = found[boost]
    return TreeChoice(weight, ndcg, without, boost), (np.float32(weight) * values, labels)


def boosted_searches(tree: LabelTree, Y: CsrArray, largest: float, search: Callable[[], Added]) -> dict[float, Added]:
    """What a search finds with each boost, up to the largest, of a tree that was fitted to rows with these labels."""
    counts, found = column_counts(Y), {}
    for boost in (boost for boost in TREE_BOOSTS if boost <= largest):
        tree.set_rare_label_boost(counts, boost)
        found[boost] = search()
    return found


def top_k_with_trees(
    codebook: Codebook, v: Tensor, k: int, added: Added | None, processes: Processes = ALONE
) -> tuple[Tensor, Tensor]:
    """The k best labels with what label trees add to their scores; each process ranks its share of the rows.

    Shapes: (n, d) -> (n, k), (n, k)
    """
    if added is None:
        return shared_top_k(processes, codebook, v, k)

    def top_k(first: int, last: int) -> list[FloatArray]:
        scores = AddedScores(codebook, *(torch.from_numpy(array[first:last]) for array in added))
        return [each.numpy() for each in scores.top_k(v[first:last], k)]

    scores, labels = (torch.from_numpy(np.asarray(each)) for each in processes.by_rows(len(v), top_k))
    return scores, labels
