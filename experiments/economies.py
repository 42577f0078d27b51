"""Economies of the default model against their exact twins: loss of accuracy, gain in CPU seconds and bytes.

    .venv/bin/python experiments/economies.py bibtex delicious [--economies tolerance beam] [--part test] [--rows 20000]

An economy is a constant or a representation that makes training or the model file cheaper. Its twin is the default
model with that one thing exact, or far less economical. A loss is the measure of the twin minus that of the default, so
a positive loss is what the economy costs; its standard error is over rows, paired. Ratios are those of the twin to the
default. Models read the features of the dataset; "text" economies are measured on features of the texts. Rows are held
out of the training split unless `--part test`. Results are added to experiments/results/economies.jsonl, and what is
there is not measured again. The last line printed is JSON.
"""

import argparse
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accuracy.common import METRICS, load_splits, take_rows
from holobind_paper.datasets import data_folder
from scipy.sparse import csr_array

import holobind as hb
from holobind import metrics
from holobind._types import CsrArray, FloatArray
from holobind.data import Split
from holobind.data.csr import normalise_rows, scale_columns
from holobind.ridge_knn import fit, fit_forest, fit_steps, knn_index, tree_choice

RESULTS = Path(__file__).parent / "results" / "economies.jsonl"
MAX_LOSS = 0.1  # points that an economy may cost
WITHOUT_LIMIT = 1 << 60
COSINE_SCALE = 1 << 14  # exact cosines in about the units of `KnnIndex`
SEARCH_BLOCK_SCORES = 1 << 25
WARM_UP_ROWS = 5000  # with fewer, some kernels of the largest datasets would not be used


# Exact twins of representations


class ExactKnnIndex:
    """`KnnIndex` with cosines in double precision; weak features of queries are skipped as there."""

    def __init__(self, X: CsrArray, feature_weights: FloatArray) -> None:
        self.feature_weights = feature_weights.astype(np.float64)
        self.rows = csr_array(normalise_rows(scale_columns(X, feature_weights)).astype(np.float64).T)

    def search(self, X: CsrArray, k: int, min_features: int = 0) -> tuple[FloatArray, Any]:
        queries = csr_array(normalise_rows(scale_columns(X, self.feature_weights)).astype(np.float64))
        strengths = np.abs(X.data) * self.feature_weights[X.indices] ** 2
        row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        strongest = np.zeros(X.shape[0])
        np.maximum.at(strongest, row, strengths)
        queries.data = np.where(strengths >= knn_index.MIN_FEATURE_STRENGTH * strongest[row], queries.data, 0)
        n = self.rows.shape[1]
        cosines, neighbours = np.zeros((X.shape[0], k)), np.zeros((X.shape[0], k), np.int64)
        step = max(1, SEARCH_BLOCK_SCORES // max(n, 1))
        for top in range(0, X.shape[0], step):
            scores = csr_array(queries[top : top + step] @ self.rows).toarray()
            best = np.argpartition(-scores, min(k, n) - 1, axis=1)[:, :k]
            order = np.lexsort((best, -np.take_along_axis(scores, best, 1)))
            best = np.take_along_axis(best, order, 1)
            found = np.maximum(np.take_along_axis(scores, best, 1), 0)
            cosines[top : top + step, : best.shape[1]] = found
            neighbours[top : top + step, : best.shape[1]] = np.where(found > 0, best, 0)
        cosines[np.diff(X.indptr) < min_features] = 0
        return cosines * COSINE_SCALE, neighbours


class _FloatTables:
    """numpy with float32 in place of int8: the tables of an `Encoder` are then not rounded."""

    int8 = np.float32

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def _copy_rows(V: FloatArray, levels: FloatArray, scales: FloatArray) -> None:
    levels[:], scales[:] = V, 1


def _float_codes(blocks: Iterable[torch.Tensor], *_: object) -> tuple[torch.Tensor, torch.Tensor]:
    W = torch.cat(list(blocks))
    return W.detach().float().contiguous().clone(), torch.full((len(W),), 2.0, dtype=torch.float16)


def _first_tree_of_all_rows(network: Callable[..., Any]) -> Callable[..., Any]:
    """`RidgeSteps.network` with a first label tree that is fitted again, to all rows."""

    def build(
        self: Any,
        solution: Any,
        X: Any,
        Y: Any,
        choice: Any,
        forest: Any,
        trees: Any = (),
        weight: Any = 0.0,
        update: bool = False,
    ) -> Any:
        trees = [fit_steps.fit_label_tree(X, Y, seed=self.seed), *trees[1:]] if trees and weight else trees
        return network(self, solution, X, Y, choice, forest, trees, weight, update)

    return build


# The table


@dataclass(frozen=True)
class Shape:
    rows: int
    features: int
    labels: int
    has_texts: bool

    @property
    def is_one_hot(self) -> bool:
        return self.labels <= fit.MAX_ONE_HOT_LABELS

    @property
    def may_have_trees(self) -> bool:
        return self.rows >= tree_choice.MIN_ROWS_FOR_TREES


@dataclass(frozen=True)
class Economy:
    """A setting of the default and its twin.

    twin      "module:name" -> the value of the twin; a "~" before the module: a function from the default to the twin
    applies   whether a dataset of some shape has the economy
    text      whether models read features of the texts
    """

    name: str
    default: str
    twin: dict[str, Any]
    twin_text: str
    applies: Callable[[Shape], bool] = field(default=lambda shape: True)
    text: bool = False


def _many_labels(shape: Shape) -> bool:
    return not shape.is_one_hot


def _trees(shape: Shape) -> bool:
    return shape.may_have_trees


def _forest(shape: Shape) -> bool:
    return fit._suits_forest(shape.rows, shape.features)


def _large(shape: Shape) -> bool:
    from holobind.ridge_knn.ridge import MAX_CHOLESKY_UNKNOWNS

    return min(shape.rows, shape.features + 1) > MAX_CHOLESKY_UNKNOWNS


def _texts(shape: Shape) -> bool:
    return shape.has_texts


RIDGE, FIT, STEPS, TREE = "ridge_knn.ridge", "ridge_knn.fit", "ridge_knn.fit_steps", "ridge_knn.label_tree"
ENCODER, NETWORK, TREE_FIT = "ridge_knn.encoder", "ridge_knn.network", "ridge_knn.fit_label_tree"
EXACT_TOLERANCE = {f"{RIDGE}:FIRST_TOLERANCE": 0.003, f"{RIDGE}:MIN_TOLERANCE": 0.003}
MORE_ITERATIONS = {f"{RIDGE}:solve_ridge.__kwdefaults__[max_iterations]": 1000}
ECONOMIES = {
    each.name: each
    for each in (
        Economy(
            "tolerance", "0.3, smaller while held-out rows gain", EXACT_TOLERANCE | MORE_ITERATIONS, "0.003", _large
        ),
        Economy("iterations", "100", MORE_ITERATIONS, "1000", _large),
        Economy(
            "weight bits",
            "2 or 4",
            {
                f"{NETWORK}:quantise_blocks": _float_codes,
                f"{NETWORK}:dequantise": lambda codes, scales, dim, bits: codes,
                f"{ENCODER}:unpack_levels": lambda codes, dim, bits: codes,
                f"{ENCODER}:quantised": lambda V: (np.ascontiguousarray(V), np.ones(len(V), np.float32)),
            },
            "float32",
        ),
        Economy("search bits", "8 and 16", {f"{ENCODER}:KnnIndex": ExactKnnIndex}, "float64"),
        Economy("weak features", "skipped in the search", {"ridge_knn.knn_index:MIN_FEATURE_STRENGTH": 0.0}, "none"),
        Economy("neighbours", "30", {f"{ENCODER}:N_NEIGHBOURS": 100}, "100"),
        Economy(
            "search dim", "penalty chosen at dim 128", {f"{STEPS}:L2_SEARCH_DIM": WITHOUT_LIMIT}, "full", _many_labels
        ),
        Economy(
            "held-out rows",
            "2000",
            {
                f"{FIT}:MAX_HELD_OUT_ROWS": WITHOUT_LIMIT,
                "ridge_knn._ridge_solvers:MAX_HELD_OUT_ROWS": WITHOUT_LIMIT,
            },
            "a fifth",
            lambda shape: shape.rows > 10000,
        ),
        Economy("penalty grid", "step 10^1/2", {f"{RIDGE}:L2_STEP": 10**0.25, f"{RIDGE}:MAX_L2_STEPS": 12}, "10^1/4"),
        Economy("trial trees", "10", {f"{FIT}:N_TRIAL_TREES": fit_forest.N_TREES}, "40", _forest),
        Economy("forest leaves", "512", {"ridge_knn.fit_forest:MAX_LEAVES": WITHOUT_LIMIT}, "no limit", _forest),
        # Sums of a split fit 16 bits for rows of up to 1,024 features, however many there are in all.
        Economy(
            "forest limits",
            "at most 1,024 features, 8 rows for each",
            {
                f"{FIT}:_suits_forest": lambda n_rows, n_features: n_rows >= fit.MIN_ROWS_FOR_FOREST,
                "ridge_knn.forest:MAX_FEATURES": WITHOUT_LIMIT,
            },
            "tried everywhere",
            lambda shape: not _forest(shape),
        ),
        Economy(
            "residual table",
            "int8",
            {f"{ENCODER}:np": _FloatTables(), f"{ENCODER}:quantise_rows": _copy_rows},
            "float32",
        ),
        Economy("dim", "1024", {f"{FIT}:MANY_LABELS_DIM": 4096}, "4096", _many_labels),
        Economy(
            "beam",
            "10 within a factor of e^3, 20 labels",
            {f"{TREE}:BEAM": 100, f"{TREE}:MAX_LOG_RATIO": np.inf, f"{TREE}:N_FOUND": 500},
            "100, 500 labels",
            _trees,
        ),
        Economy("least tree weight", "0.1", {f"{TREE_FIT}:MIN_WEIGHT": 1e-6}, "0", _trees),
        Economy(
            "tree solver",
            "tolerance 0.3, 20 epochs",
            {f"{TREE_FIT}:TOLERANCE": 0.01, f"{TREE_FIT}:MAX_EPOCHS": 500},
            "0.01, 500 epochs",
            _trees,
        ),
        Economy("label trees", "4", {f"{FIT}:N_LABEL_TREES": 8}, "8", _trees),
        Economy(
            "first tree",
            "fitted to kept rows",
            {f"~{STEPS}:RidgeSteps.network": _first_tree_of_all_rows},
            "to all rows",
            _trees,
        ),
        Economy(
            "text features",
            "40,000 to 80,000",
            {"data.tfidf:MIN_FEATURES_KEPT": WITHOUT_LIMIT},
            "all",
            _texts,
            text=True,
        ),
        Economy("features a text", "100", {"data.tfidf:MAX_FEATURES_PER_TEXT": 1 << 30}, "all", _texts, text=True),
    )
}


@contextmanager
def replaced(twin: dict[str, Any]) -> Iterator[None]:
    """Set constants of modules, as `Economy.twin` names them, and set them back."""
    undo: list[Callable[[], None]] = []
    try:
        for path, value in twin.items():
            module, _, name = path.lstrip("~").partition(":")
            owner: Any = importlib.import_module(f"holobind.{module}")
            *parents, last = name.split(".")
            for parent in parents:
                owner = getattr(owner, parent)
            if last.endswith("]"):  # an entry of a dictionary
                last, _, key = last[:-1].partition("[")
                table = getattr(owner, last)
                undo.append(lambda table=table, key=key, old=table[key]: table.__setitem__(key, old))
                table[key] = value
                continue
            old = getattr(owner, last)
            undo.append(lambda owner=owner, last=last, old=old: setattr(owner, last, old))
            setattr(owner, last, value(old) if path.startswith("~") else value)
        yield
    finally:
        for each in reversed(undo):
            each()


@dataclass(frozen=True)
class Run:
    """A model's measures of each row in percent (columns: METRICS), its settings and its cost."""

    by_row: FloatArray
    fit_seconds: float
    predict_seconds: float
    n_bytes: int
    settings: dict[str, Any]


def measure(train: Split, held: Split, text: bool, seed: int, twin: dict[str, Any]) -> Run:
    """Fit a default model with the constants of a twin, and measure it on held-out rows."""
    with replaced(twin):
        began = time.process_time()
        model = hb.learn(train, hb.ModelConfig(text=text, seed=seed))
        fitted = time.process_time()
        top = model.top_k(held.texts if text else held.X, 5)[1]
        predicted = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "model.safetensors")
            n_bytes = (Path(folder) / "model.safetensors").stat().st_size
    ridge, knn = model.metadata["ridge"], model.metadata["knn"]
    settings = {name: ridge[name] for name in ("l2", "tolerance", "iterations", "converged")}
    settings |= {name: knn[name] for name in ("knn_weight", "similarity_power", "idf_power", "forest_weight")}
    settings["tree_weight"] = model.network.tree_weight
    return Run(measures(train, held, top), fitted - began, predicted - fitted, n_bytes, settings)


def measures(train: Split, held: Split, top: Any) -> FloatArray:
    """P@k and PSP@k of each row such that means over rows are those of `holobind.metrics`.  Shapes: -> (n, 6)"""
    hits = metrics.hits(held.Y, top).astype(np.float64)
    values = 1 / metrics.propensity(train.Y)
    columns = [100 * hits[:, :k].mean(1) for k in (1, 3, 5)]
    ideal = np.zeros((len(top), 5))
    for r in range(len(top)):
        best = np.sort(values[held.Y.indices[held.Y.indptr[r] : held.Y.indptr[r + 1]]])[::-1][:5]
        ideal[r, : len(best)] = best
    gains = hits * values[top]
    # The normaliser of PSP is a mean over rows, so a row's share is its gain over that mean.
    shares = [100 * gains[:, :k].sum(1) / max(ideal[:, :k].sum(1).mean(), 1e-12) for k in (1, 3, 5)]
    return np.stack(columns + shares, 1)


def compare(economy: Run, twin: Run) -> dict[str, Any]:
    """Losses of the economy and their standard errors, and the ratios of the twin's cost to the economy's."""
    difference = twin.by_row - economy.by_row
    error = difference.std(0, ddof=1) / len(difference) ** 0.5
    return {
        "measured": len(difference),
        "default": dict(zip(METRICS, economy.by_row.mean(0).round(3).tolist(), strict=True)),
        "loss": dict(zip(METRICS, difference.mean(0).round(3).tolist(), strict=True)),
        "standard error": dict(zip(METRICS, error.round(3).tolist(), strict=True)),
        "fit seconds ratio": round(twin.fit_seconds / max(economy.fit_seconds, 1e-9), 2),
        "predict seconds ratio": round(twin.predict_seconds / max(economy.predict_seconds, 1e-9), 2),
        "bytes ratio": round(twin.n_bytes / economy.n_bytes, 3),
        "fit seconds": round(economy.fit_seconds, 1),
        "bytes": economy.n_bytes,
        "settings": economy.settings,
        "twin settings": twin.settings,
    }


def read_results(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def audit(
    train: Split, held: Split, wanted: Sequence[Economy], key: dict[str, Any], results: Path
) -> Iterator[dict[str, Any]]:
    """Measure the economies that `results` does not have yet, and add a line for each to it."""
    done = {each["economy"] for each in read_results(results) if key.items() <= each.items()}
    shape = Shape(len(train), train.X.shape[1], train.Y.shape[1], train.texts is not None)
    baselines: dict[bool, Run] = {}
    pending = [economy for economy in wanted if economy.name not in done and economy.applies(shape)]
    if pending:  # compiled code is loaded before anything is timed
        measure(take_rows(train, np.arange(min(len(train), WARM_UP_ROWS))), held, False, key["seed"], {})
    for economy in pending:
        if economy.text not in baselines:
            baselines[economy.text] = measure(train, held, economy.text, key["seed"], {})
        twin = measure(train, held, economy.text, key["seed"], economy.twin)
        result = {**key, "economy": economy.name, **compare(baselines[economy.text], twin)}
        with results.open("a") as file:
            file.write(json.dumps(result) + "\n")
        yield result


def sample(split: Split, n: int | None, seed: int) -> Split:
    """n random rows of a split, or all where it has no more or n is None."""
    if n is None or n >= len(split):
        return split
    return take_rows(split, np.sort(np.random.default_rng(seed).choice(len(split), n, replace=False)))


def line(result: dict[str, Any]) -> str:
    losses = " ".join(f"{value:+6.2f}" for value in result["loss"].values())
    ratios = " ".join(f"{result[name]:7.2f}" for name in ("fit seconds ratio", "predict seconds ratio", "bytes ratio"))
    return f"{result['dataset']:22s} {result['economy']:22s} {losses}   {ratios}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", metavar="DATASET")
    parser.add_argument("--economies", nargs="+", choices=list(ECONOMIES), default=list(ECONOMIES), metavar="NAME")
    parser.add_argument("--part", choices=("held-out", "test"), default="held-out")
    parser.add_argument("--rows", type=int, help="training rows, drawn at random (default: all)")
    parser.add_argument("--measured", type=int, help="rows to measure on, drawn at random (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of datasets (default: HOLOBIND_DATA)")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(f"{'':45s} {' '.join(f'{name:>6s}' for name in METRICS)}   fit s x  pred x bytes x\n")
    for name in options.datasets:
        part = "test" if options.part == "test" else "validation"
        train, held = load_splits(name, part, seed=options.seed, folder=options.data)
        train, held = (sample(split, n, options.seed) for split, n in ((train, options.rows), (held, options.measured)))
        key = {"dataset": name, "part": options.part, "rows": len(train), "seed": options.seed}
        wanted = [ECONOMIES[each] for each in options.economies]
        for result in audit(train, held, wanted, key, options.results):
            sys.stdout.write(line(result))
            sys.stdout.flush()
    found = read_results(options.results)
    costly = [
        {"dataset": each["dataset"], "economy": each["economy"], "loss": each["loss"]}
        for each in found
        if max(each["loss"].values()) > MAX_LOSS
    ]
    sys.stdout.write(json.dumps({"results": len(found), "max loss": MAX_LOSS, "costly": costly}) + "\n")


if __name__ == "__main__":
    main()
