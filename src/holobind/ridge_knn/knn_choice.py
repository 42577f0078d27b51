"""The choice of the kNN term: idf_power, similarity_power and knn_weight, by nDCG@5 on held-out rows.

The terms of the outputs of held-out rows are computed once (`held_out_outputs`); the output of any setting is a sum of
them.
"""

from dataclasses import dataclass, replace
from itertools import product
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import vstack
from torch import Tensor

from holobind._processes import ALONE, Processes
from holobind._storage import check_tensors
from holobind._types import CsrArray
from holobind.codebooks import Codebook
from holobind.metrics import ndcg_at_k
from holobind.ridge_knn.candidates import Candidates, shared_top_k
from holobind.ridge_knn.encoder import LinearEncoder
from holobind.ridge_knn.estimate import nearest_cosines
from holobind.ridge_knn.sharded_rows import ShardedRows

IDF_POWERS = (0.0, 0.5)
MIN_IDF_GAIN = 0.25  # points of nDCG@5 by which an idf power above 0 must be better
SIMILARITY_POWERS = (1.0, 2.0, 4.0, 8.0)
KNN_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
N_CANDIDATES = 32  # labels of a row, by each of three typical settings, among which others rank where labels are many
KNN_NOISE = 0.1  # points of nDCG@5, less than the standard error, by which a knn_weight must be worse to be out
MIDDLE_KNN_WEIGHT = 0.75  # with which idf_power and similarity_power are chosen

FOREST_WEIGHT = 0.5
# With a forest these two are fixed: the best ones with ten trees are not the best ones with all trees.
FOREST_SIMILARITY_POWER, FOREST_KNN_WEIGHT = 6.0, 0.75


@dataclass(frozen=True)
class KnnChoice:
    """Settings of the kNN term and the forest, and their nDCG@5 on held-out rows in percent (None: not validated)."""

    idf_power: float
    similarity_power: float
    knn_weight: float
    forest_weight: float
    ndcg: float | None = None


@dataclass(frozen=True)
class HeldOutOutputs:
    """The terms of a network's output for held-out rows, of which the output of any `KnnChoice` is a sum.

    Y                  the labels of the rows
    linear             x W + b
    residuals          mean residuals of the neighbours, by idf_power and similarity_power
    forest             the mean leaf value of the trees, if there are any
    forest_residuals   mean residuals with a forest, by idf_power: without rows that have few features
    nearest            cosines of the rows with their nearest kept rows, if these were searched
    """

    Y: CsrArray
    linear: Tensor
    residuals: dict[tuple[float, float], Tensor]
    forest: Tensor | None
    forest_residuals: dict[float, Tensor]
    nearest: NDArray[np.float64] | None = None

    def output(self, choice: KnnChoice) -> Tensor:
        """Shapes: -> (n, d)"""
        if choice.forest_weight and self.forest is not None:
            knn = choice.knn_weight * self.forest_residuals.get(choice.idf_power, torch.zeros(()))
            return (self.linear + knn) * (1 - choice.forest_weight) + self.forest
        powers = choice.idf_power, choice.similarity_power
        return self.linear + choice.knn_weight * self.residuals[powers] if choice.knn_weight else self.linear

    def tensors(self) -> dict[str, Tensor]:
        """All but the labels, by names."""
        found = {"linear": self.linear}
        found |= {f"residuals {idf} {power}": tensor for (idf, power), tensor in self.residuals.items()}
        found |= {f"forest residuals {idf}": tensor for idf, tensor in self.forest_residuals.items()}
        if self.forest is not None:
            found["forest"] = self.forest
        return found if self.nearest is None else found | {"nearest": torch.from_numpy(self.nearest)}

    @classmethod
    def of_tensors(cls, Y: CsrArray, dim: int, with_knn: bool, tensors: dict[str, Tensor]) -> Self:
        """The outputs whose `tensors` these are; they may come from a file and are checked."""
        powers = list(product(IDF_POWERS, SIMILARITY_POWERS)) if with_knn else []
        names = {f"residuals {idf} {power}": (idf, power) for idf, power in powers}
        forest_names = {f"forest residuals {idf}": idf for idf in IDF_POWERS}
        optional = {"forest", "nearest", *forest_names} & tensors.keys()
        found = dict(tensors)
        with torch.device("meta"):
            wanted = {name: torch.empty(Y.shape[0], dim) for name in ("linear", *names, *optional)}
            if "nearest" in wanted:
                wanted["nearest"] = torch.empty(Y.shape[0], dtype=torch.float64)
        check_tensors("outputs", wanted, found)
        return cls(
            Y,
            found["linear"],
            {powers: found[name] for name, powers in names.items()},
            found.get("forest"),
            {idf: found[name] for name, idf in forest_names.items() if name in found},
            found["nearest"].numpy() if "nearest" in found else None,
        )


def held_out_outputs(
    encoder: LinearEncoder, rows: ShardedRows, X: CsrArray, Y: CsrArray, with_knn: bool
) -> HeldOutOutputs:
    """Outputs of held-out rows; `encoder` has this process's share of the kept rows."""
    n = X.shape[0]
    linear, forest = encoder.sum_terms([encoder.linear_term(X)], n, 1.0), encoder.forest_output(X)
    residuals, forest_residuals, nearest = {}, {}, None
    for idf_power in IDF_POWERS if with_knn else ():
        if search := encoder.build_knn_search(idf_power, with_forest=False, feature_counts=rows.feature_counts()):
            neighbours = rows.nearest(search(X))
            if nearest is None:  # without idf weights
                found, is_own = rows.local(neighbours[1][:, 0])
                nearest = rows.processes.sum(np.where(is_own, nearest_cosines(X, encoder.X, found), 0.0))
            del search  # and its index
            terms = encoder.knn_terms(neighbours, SIMILARITY_POWERS, 1.0, rows.local)
            for similarity_power, term in zip(SIMILARITY_POWERS, terms, strict=True):
                residual = rows.processes.sum(encoder.sum_terms([term], n))
                residuals[idf_power, similarity_power] = torch.from_numpy(residual)
        if forest is not None and (search := encoder.build_knn_search(idf_power, with_forest=True)):
            term = encoder.knn_term(search(X), FOREST_SIMILARITY_POWER, 1.0)
            forest_residuals[idf_power] = torch.from_numpy(encoder.sum_terms([term], n))
    mean_leaves = None if forest is None else torch.from_numpy(forest)
    return HeldOutOutputs(Y, torch.from_numpy(linear), residuals, mean_leaves, forest_residuals, nearest)


def joined_outputs(outputs: list[HeldOutOutputs], choice: KnnChoice) -> tuple[Tensor, CsrArray]:
    """The outputs of held-out rows with a choice, and their labels.  Shapes: -> (n, d), (n, L)"""
    return torch.cat([fold.output(choice) for fold in outputs]), vstack([fold.Y for fold in outputs], format="csr")


def choose_knn(
    codebook: Codebook, outputs: list[HeldOutOutputs], knn_weight: float | None, processes: Processes = ALONE
) -> tuple[KnnChoice, list[KnnChoice]]:
    """Choose idf_power and similarity_power at a middle knn_weight, then knn_weight or the forest: the best, all tried.

    knn_weight   the given one, or None to choose it
    processes    that have the same outputs, and share their rows
    """
    Y = vstack([fold.Y for fold in outputs], format="csr")
    tried: dict[KnnChoice, float] = {}
    k = min(5, codebook.n_labels)

    def output(choice: KnnChoice) -> Tensor:
        return torch.cat([fold.output(choice) for fold in outputs])

    label_candidates: Candidates | None = None
    if codebook.n_labels > max(codebook.dim, N_CANDIDATES) and outputs[0].forest is None:
        typical = [KnnChoice(idf_power, 2.0, MIDDLE_KNN_WEIGHT, 0.0) for idf_power in IDF_POWERS]
        typical = [KnnChoice(0.0, 2.0, 0.0, 0.0), *(typical if outputs[0].residuals else ())]
        ranked = [shared_top_k(processes, codebook, output(each), N_CANDIDATES)[1] for each in typical]
        label_candidates = Candidates(torch.cat(ranked, 1), processes)

    def ndcg(choice: KnnChoice) -> float:
        if choice not in tried:
            v = output(choice)
            if label_candidates is None:
                ranked = shared_top_k(processes, codebook, v, k)[1]
            else:
                ranked = label_candidates.best(label_candidates.scores(codebook, v), k)
            tried[choice] = float(ndcg_at_k(Y, ranked.numpy())[-1])
        return tried[choice]

    middle = MIDDLE_KNN_WEIGHT if knn_weight is None else knn_weight
    powers = [KnnChoice(idf, power, middle, 0.0) for idf, power in product(IDF_POWERS, SIMILARITY_POWERS)]
    best = max(powers, key=lambda choice: ndcg(choice) - MIN_IDF_GAIN * (choice.idf_power > 0))
    candidates = [replace(best, knn_weight=each) for each in (KNN_WEIGHTS if knn_weight is None else (knn_weight,))]
    if outputs[0].forest is not None:
        forest_knn_weight = FOREST_KNN_WEIGHT if knn_weight is None else knn_weight
        candidates.append(KnnChoice(best.idf_power, FOREST_SIMILARITY_POWER, forest_knn_weight, FOREST_WEIGHT))
    best = max(candidates, key=ndcg)
    if not best.forest_weight:  # of weights that cannot be told apart, the usual one
        close = [each for each in candidates if not each.forest_weight and ndcg(each) >= ndcg(best) - KNN_NOISE]
        best = min(close, key=lambda choice: abs(choice.knn_weight - MIDDLE_KNN_WEIGHT))
    return replace(best, ndcg=tried[best]), [replace(choice, ndcg=score) for choice, score in tried.items()]
