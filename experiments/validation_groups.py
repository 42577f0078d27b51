"""Validation with random rows and with whole groups held out, against the test split, where families of rows are alike.

    .venv/bin/python experiments/validation_groups.py [debian-depends python-calls] [--rows 15000] [--dim 512]

The test splits hold other families than the training splits: other source packages of Debian, other packages of Python
code. A group of debian-depends is the stem of a package's name, its letters up to the first of "-", "." and "_" or the
first digit; a group of python-calls is the folder of a module. For each way of holding out:

    l2, knn_weight    what the default model chooses
    estimate          nDCG@5 on held-out rows, with its interval
    test              nDCG@5 on the test split with these settings
    best on test      the best nDCG@5 on the test split of penalties and kNN weights around both choices
    near-duplicates   the fraction of held-out rows with a kept row of a cosine above 0.9

There are no label trees in these models: the question is the choice of the penalty and of the kNN term. The last line
printed is JSON.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from accuracy.common import take_rows
from holobind_paper.datasets import data_folder

import holobind as hb
from holobind._processes import ALONE
from holobind.data import Split
from holobind.data.csr import normalise_rows
from holobind.data.holdout import group_ids
from holobind.data.python_calls import STDLIB, _modules, functions, package_of, split_of
from holobind.metrics import ndcg_at_k
from holobind.ridge_knn import KnnChoice, fit_ridge_knn, fit_steps
from holobind.ridge_knn.encoder import Encoder
from holobind.ridge_knn.knn_choice import choose_knn, held_out_outputs
from holobind.ridge_knn.sharded_rows import ShardedRows

DATASETS = ("debian-depends", "python-calls")
L2_FACTORS = (0.3, 1.0, 3.0)  # around the chosen penalties
STEM = re.compile(r"[-._0-9]")


def stem(text: str) -> str:
    """The first word of a text up to the first "-", ".", "_" or digit.

    >>> stem("libfoo-dev a library"), stem("python3.11 x"), stem("7zip y")
    ('libfoo', 'python', '7zip')
    """
    word = text.split(maxsplit=1)[0] if text.strip() else ""
    return STEM.split(word)[0] or word


def load(name: str, folder: Path) -> tuple[Split, Split, list[str]]:
    """The training split, the test split and the groups of the training rows."""
    if name == "python-calls":
        data = hb.data.python_calls(split_by="package")
        labels = set(data.label_names or ())
        groups = [
            package_of(module)
            for module, file in _modules(STDLIB)
            if split_of(package_of(module)) == "train"
            for _, calls in functions(file.read_bytes())
            if calls & labels
        ]
    else:
        data = hb.data.load(folder / name)
        groups = [stem(text) for text in data.train.texts or ()]
    assert data.test is not None and len(groups) == len(data.train)
    return data.train, data.test, groups


def run(train: Split, test: Split, groups: list[str], dim: int, seed: int) -> dict[str, Any]:
    X, X_test = normalise_rows(train.X), normalise_rows(test.X)
    ids = group_ids(groups, len(train))
    fits = {
        name: fit_ridge_knn(X, train.Y, dim=dim, label_trees=0, seed=seed, groups=held)
        for name, held in (("rows", None), ("groups", ids))
    }
    found: dict[str, Any] = {}
    penalties = {fitted.solution.l2 * factor for fitted in fits.values() for factor in L2_FACTORS}
    best = (-1.0, 0.0, 0.0, 0.0, 0.0)
    for name, fitted in fits.items():
        network, estimate = fitted.network, fitted.estimate
        assert estimate is not None
        tested = ndcg_at_k(test.Y, network.codebook().top_k(network.encode(X_test), 5)[1].numpy())[-1]
        found[name] = {
            "l2": round(fitted.solution.l2, 3),
            "knn_weight": network.knn_weight,
            "similarity_power": network.similarity_power,
            "idf_power": network.idf_power,
            "estimate": estimate.summary(),
            "near_duplicates": fitted.near_duplicates,
            "test": round(float(tested), 2),
        }
        best = max(best, (float(tested), fitted.solution.l2, *_powers(network)))
    ridge = fit_steps.RidgeSteps(network.codebook(), network.rare_label_boost, seed, None)
    trial = KnnChoice(0.0, 2.0, 1.0, 0.0)
    rows = ShardedRows(X, train.Y, np.arange(X.shape[0]), ALONE)
    for l2 in sorted(penalties):
        solution = ridge.solve(X, train.Y, l2, fits["rows"].solution.tolerance)
        network = ridge.network(solution, X, train.Y, trial, None)
        encoder = Encoder(network, with_knn=False, label_counts=rows.label_counts)
        outputs = held_out_outputs(encoder, rows, X_test, test.Y, True)
        choice, _ = choose_knn(ridge.codebook, [outputs], None)
        best = max(best, (choice.ndcg or 0.0, l2, choice.knn_weight, choice.similarity_power, choice.idf_power))
    names = ("nDCG@5", "l2", "knn_weight", "similarity_power", "idf_power")
    found["best on test"] = {name: round(value, 3) for name, value in zip(names, best, strict=True)}
    return found


def _powers(network: Any) -> tuple[float, float, float]:
    return network.knn_weight, network.similarity_power, network.idf_power


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=DATASETS, metavar="DATASET")
    parser.add_argument("--rows", type=int, default=15000, help="training rows, of whole groups drawn at random")
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of datasets (default: HOLOBIND_DATA)")
    options = parser.parse_args()
    results = {}
    for name in options.datasets:
        train, test, groups = load(name, options.data)
        if options.rows < len(train):  # whole groups, so that families stay as large as they are
            ids = group_ids(groups, len(train))
            order = np.random.default_rng(options.seed).permutation(ids.max() + 1)
            rows = np.flatnonzero(np.cumsum(np.bincount(ids)[order])[np.argsort(order)][ids] <= options.rows)
            train, groups = take_rows(train, rows), [groups[i] for i in rows]
        results[name] = {"training rows": len(train), "training groups": len(set(groups)), "test rows": len(test)}
        results[name] |= run(train, test, groups, options.dim, options.seed)
        sys.stdout.write(json.dumps({name: results[name]}, indent=1) + "\n")
        sys.stdout.flush()
    sys.stdout.write(json.dumps({"dim": options.dim, "results": results}) + "\n")


if __name__ == "__main__":
    main()
