"""Economies of the default model against their exact twins, with every choice fixed: nothing else differs.

    .venv/bin/python experiments/economies_fixed.py bibtex yso-en [--economies tolerance beam] [--measured 4000]

`economies.py` fits both sides anew, and most of what it sees is a neighbouring penalty or weight being chosen. Here a
default model is fitted once. Its penalty, kNN settings and tree weight stay, and a twin computes again only the parts
that it concerns: the ridge regression, the label trees, or the tables of prediction. Economies of the choice itself
(rows held out, steps of the penalty, trial trees) have no twin of this kind.

Rows are a fifth of the training split, held out, of which `--measured` are drawn; each of `--seeds` holds out others. A
loss is the measure of the twin minus that of the default, with its standard error over rows, paired; means of seeds are
judged. An economy is "harmless" on a dataset if no measure loses more than 0.1 points, "costly" if one loses more than
that by two standard errors, else "not resolved". Results are added to experiments/results/economies-fixed.jsonl, and
what is there is not measured again. The last line printed is JSON.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from accuracy.common import METRICS, load_splits
from economies import ECONOMIES, MAX_LOSS, Economy, Shape, measures, read_results, replaced, sample
from holobind_paper.datasets import data_folder

from holobind._types import CsrArray, FloatArray
from holobind.data import Split
from holobind.data.csr import canonical_csr, column_counts, normalise_rows, take_rows
from holobind.ridge_knn import fit, tree_choice
from holobind.ridge_knn.fit_label_tree import fit_label_tree
from holobind.ridge_knn.fit_steps import RidgeSteps
from holobind.ridge_knn.knn_choice import KnnChoice
from holobind.ridge_knn.network import RidgeKnn, default_codebook

RESULTS = Path(__file__).parent / "results" / "economies-fixed.jsonl"
SOLUTION, TREES, TABLES = "ridge regression", "label trees", "tables"
PARTS = {  # of the model that a twin computes again; prediction always
    "tolerance": SOLUTION,
    "iterations": SOLUTION,
    "dim": SOLUTION,
    "least tree weight": TREES,
    "tree solver": TREES,
    "label trees": TREES,
    "first tree": TREES,
    "weight bits": TABLES,
    "search bits": TABLES,
    "weak features": TABLES,
    "neighbours": TABLES,
    "residual table": TABLES,
    "beam": TABLES,
}
EXACT_TOLERANCE = 0.003
CERTAIN = 2.0  # standard errors
HARMLESS, COSTLY, NOT_RESOLVED = "harmless", "costly", "not resolved"


@dataclass(frozen=True)
class Parts:
    """A fitted default model in parts: rows of norm 1, their labels, and what was chosen and fitted."""

    X: CsrArray
    Y: CsrArray
    fitted: fit.RidgeKnnFit
    seed: int

    @classmethod
    def of(cls, train: Split, seed: int) -> "Parts":
        X = canonical_csr(normalise_rows(train.X).astype(np.float32))
        return cls(X, train.Y, fit.fit_ridge_knn(X, train.Y, seed=seed), seed)

    @property
    def has_trees(self) -> bool:
        return bool(self.fitted.network.tree_weight)

    def network(self, economy: Economy | None) -> RidgeKnn:
        """The network with the same choices; call it with the constants of the twin set."""
        default, solution = self.fitted.network, self.fitted.solution
        part = None if economy is None else PARTS[economy.name]
        n_labels = self.Y.shape[1]
        codebook = default_codebook(n_labels, fit.default_knn_dim(n_labels), self.seed)
        steps = RidgeSteps(codebook, default.rare_label_boost, self.seed, None)
        if economy is not None and part == SOLUTION:
            tolerance = EXACT_TOLERANCE if economy.name == "tolerance" else solution.tolerance
            solution = steps.solve(self.X, self.Y, solution.l2, tolerance)
        trees = list(default.trees())
        if economy is not None and part == TREES:
            kept = fit._folds(self.X.shape[0], self.seed)[0][0]
            everything = economy.name == "first tree"
            rows = [np.arange(self.X.shape[0]) if everything or i else kept for i in range(fit.N_LABEL_TREES)]
            trees = [
                fit_label_tree(take_rows(self.X, chosen), take_rows(self.Y, chosen), seed=self.seed + i)
                if not (everything and i)
                else trees[i]
                for i, chosen in enumerate(rows)
            ]
            for tree in trees:
                tree.set_rare_label_boost(column_counts(self.Y), default.trees()[0].rare_label_boost)
        choice = KnnChoice(default.idf_power, default.similarity_power, default.knn_weight, default.forest_weight)
        return steps.network(solution, self.X, self.Y, choice, default.forest, trees, default.tree_weight)


def predict(network: RidgeKnn, X: CsrArray) -> tuple[Any, float]:
    """The five best labels of each row, and CPU seconds of a second pass.  Shapes: (n, f) -> (n, 5)"""
    X = normalise_rows(X).astype(np.float32)
    for _ in range(2):
        began = time.process_time()
        v, added = network.encode(X), network.label_scores(X)
        top = tree_choice.top_k_with_trees(network.codebook(), v, min(5, network.n_labels), added)[1]
        seconds = time.process_time() - began
    return top.numpy(), seconds


def audit(train: Split, held: Split, wanted: list[Economy], key: dict[str, Any], results: Path) -> Iterator[Any]:
    done = {each["economy"] for each in read_results(results) if key.items() <= each.items()}
    shape = Shape(len(train), train.X.shape[1], train.Y.shape[1], False)
    pending = [each for each in wanted if each.name not in done and each.applies(shape)]
    if not pending:
        return
    parts = Parts.of(train, key["seed"])
    top, default_seconds = predict(parts.network(None), held.X)
    default = measures(train, held, top)
    for economy in pending:
        if not parts.has_trees and (PARTS[economy.name] == TREES or economy.name == "beam"):
            continue
        began = time.process_time()
        with replaced(economy.twin):
            network = parts.network(economy)
            built = time.process_time() - began
            top, seconds = predict(network, held.X)
        result = {
            **key,
            "economy": economy.name,
            "default is": economy.default,
            "twin is": economy.twin_text,
            **compared(default, measures(train, held, top)),
            "predict seconds ratio": round(seconds / max(default_seconds, 1e-9), 2),
            "seconds to compute again": round(built, 1),
        }
        with results.open("a") as file:
            file.write(json.dumps(result) + "\n")
        yield result


def compared(default: FloatArray, twin: FloatArray) -> dict[str, Any]:
    """Losses of the economy and their standard errors.  Shapes: 2 x (n, 6)"""
    difference = twin - default
    loss, error = difference.mean(0), difference.std(0, ddof=1) / len(difference) ** 0.5
    return {
        "measured": len(difference),
        "default": dict(zip(METRICS, default.mean(0).round(3).tolist(), strict=True)),
        "loss": dict(zip(METRICS, loss.round(3).tolist(), strict=True)),
        "standard error": dict(zip(METRICS, error.round(3).tolist(), strict=True)),
    }


def verdict(loss: FloatArray, error: FloatArray) -> str:
    if bool((loss <= MAX_LOSS).all()):
        return HARMLESS
    return COSTLY if bool((loss - CERTAIN * error > MAX_LOSS).any()) else NOT_RESOLVED


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """For each economy and dataset: the verdict, and the largest loss of a measure with its standard error."""
    found: dict[str, Any] = {}
    for economy, dataset in dict.fromkeys((each["economy"], each["dataset"]) for each in results):
        runs = [each for each in results if (each["economy"], each["dataset"]) == (economy, dataset)]
        loss, error = (
            np.array([[run[name][metric] for metric in METRICS] for run in runs]) for name in ("loss", "standard error")
        )
        mean, joint = loss.mean(0), np.sqrt((error**2).sum(0)) / len(runs)
        worst = int(mean.argmax())
        found.setdefault(economy, {})[dataset] = {
            "verdict": verdict(mean, joint),
            "largest loss": [METRICS[worst], round(float(mean[worst]), 2), round(float(joint[worst]), 2)],
            "seeds": len(runs),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", metavar="DATASET")
    parser.add_argument("--economies", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="NAME")
    parser.add_argument("--measured", type=int, default=4000, help="held-out rows to measure on, drawn at random")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of datasets (default: HOLOBIND_DATA)")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    sys.stdout.write(f"{'':47s} {' '.join(f'{name:>6s}' for name in METRICS)}\n")
    wanted = [ECONOMIES[each] for each in options.economies]
    for name, seed in product(options.datasets, range(options.seeds)):
        train, held = load_splits(name, "validation", seed=seed, folder=options.data)
        held = sample(held, options.measured, seed)
        key = {"dataset": name, "rows": len(train), "seed": seed}
        for result in audit(train, held, wanted, key, options.results):
            losses = " ".join(f"{value:+6.2f}" for value in result["loss"].values())
            sys.stdout.write(f"{name:22s} {seed} {result['economy']:22s} {losses}\n")
            sys.stdout.flush()
    sys.stdout.write(json.dumps({"max loss": MAX_LOSS, "economies": summary(read_results(options.results))}) + "\n")


if __name__ == "__main__":
    main()
