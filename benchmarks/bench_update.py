"""Updates of the default model: seconds, error against a fit to all rows, and bytes.

    .venv/bin/python benchmarks/bench_update.py cooking-stackexchange tibkat-core-en [--only default]

The last 100 training rows of a dataset come as an update. The default model, which keeps no exact weights, is compared
with a fit to all rows: the largest difference of a weight that it predicts with. With `--only default`, nothing else is
measured, also for data without texts.

With `--update`, labels that only the new rows have come with them. The error is the largest
difference of a score from those of a fit to all rows with the same penalty, features and settings, on test rows; it is
given for the regression in float32 (x W + b), and for the whole model, whose weights are quantised. Seconds are those
of `Model.update` and `Model.forget`, without reading and writing the file. The last line printed is JSON.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import holobind as hb
from holobind.data import Split
from holobind.data.csr import label_id_sets, normalise_rows
from holobind.ridge_knn import RidgeKnn, fit_ridge_knn, rare_label_weights
from holobind.ridge_knn.update import keep_learning, prediction_weights, stored_precision

N_NEW = 100
N_TEST = 500


def timed(work: Any) -> tuple[Any, dict[str, float]]:
    began, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, {
        "seconds": round(time.perf_counter() - began, 2),
        "CPU seconds": round(time.process_time() - cpu, 2),
    }


def file_bytes(model: hb.Model) -> int:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.safetensors")
        return (Path(folder) / "model.safetensors").stat().st_size


def regression_scores(network: RidgeKnn, X: Any) -> torch.Tensor:
    assert network.learning_on is not None
    W, bias = prediction_weights(network.learning_on, network.out_features)
    return network.codebook().scores(torch.from_numpy(X @ W.numpy()) + bias)


def fit_to_all(like: RidgeKnn, X: Any, Y: Any, label_weights: Any) -> RidgeKnn:
    """A fit from zero to all rows, with the settings of a network; `label_weights`: the lengths of label vectors."""
    assert like.learning_on is not None
    nothing = np.zeros((like.n_features + 1, like.out_features), np.float32)
    state = keep_learning(nothing, X, Y, like.codebook(), label_weights, like.learning_on.l2)
    return RidgeKnn.from_weights(
        *prediction_weights(state, like.out_features),
        X,
        Y,
        knn_weight=like.knn_weight,
        similarity_power=like.similarity_power,
        idf_power=like.idf_power,
        rare_label_boost=like.rare_label_boost,
        forest=like.forest,
        forest_weight=like.forest_weight,
        label_trees=like.trees(),
        tree_weight=like.tree_weight,
        learning_on=state,
        seed=like.seed,
    )


def errors(found: RidgeKnn, wanted: RidgeKnn, X: Any) -> dict[str, float]:
    n = wanted.n_labels
    regression = (regression_scores(found, X)[:, :n] - regression_scores(wanted, X)).abs()
    whole = found.codebook().scores(found.encode(X))[:, :n] - wanted.codebook().scores(wanted.encode(X))
    return {
        "regression, largest": float(regression.max()),
        "quantised, largest": float(whole.abs().max()),
        "quantised, rms": float(whole.square().mean().sqrt()),
    }


def bench_default(dataset: Any, label_trees: int | None) -> dict[str, Any]:
    """The default model: an update solves the regression again from the stored rows."""
    train, n = dataset.train, len(dataset.train) - N_NEW
    first = Split(train.X[:n], train.Y[:n], train.texts and train.texts[:n])
    config = hb.ModelConfig(label_trees=label_trees)
    model, training = timed(lambda: hb.learn(first, config, tfidf=dataset.tfidf))
    if not model.can_learn_on:
        return {"train": training, "bytes": file_bytes(model)}
    inputs = train.texts if model.reads_texts else train.X
    new = label_id_sets(train.Y[n:])
    model.update(inputs[n : n + 2], new[:2])  # compiles
    updated, update = timed(lambda: model.update(inputs[n:], new))
    forgotten, forget = timed(lambda: updated.forget(rows=range(n, n + N_NEW)))
    network, before = updated.network, model.network
    settings = {"dim": network.out_features, "l2": network.learning_on.l2, "knn_weight": network.knn_weight}
    X = normalise_rows(updated.examples(inputs).X)
    fitted = fit_ridge_knn(X, train.Y, **settings, label_trees=0, update=None, seed=network.seed).network
    return {
        "rows": n,
        "features": network.n_features,
        "train": training,
        "update": update,
        "forget": forget,
        "largest difference of a weight": float((network.weights() - fitted.weights()).abs().max()),
        "largest change of a weight by the update": float((network.weights() - before.weights()).abs().max()),
        "forget gives the weights before": bool((forgotten.network.codes == before.codes).all()),
        "bytes": file_bytes(model),
    }


def bench(dataset: Any, label_trees: int | None) -> dict[str, Any]:
    texts, Y, names = dataset.train.texts, dataset.train.Y, dataset.label_names
    assert texts is not None and names is not None and dataset.test is not None and dataset.test.texts is not None
    n = len(texts) - N_NEW
    known = np.flatnonzero(np.bincount(Y[:n].indices, minlength=Y.shape[1]))
    first = Split(dataset.train.X[:n], Y[:n][:, known], texts[:n])
    config = hb.ModelConfig(update=True, label_trees=label_trees)
    model, training = timed(lambda: hb.learn(first, config, label_names=[names[i] for i in known], tfidf=dataset.tfidf))
    without = hb.ModelConfig(update=False, label_trees=label_trees)
    fixed, training_without = timed(
        lambda: hb.learn(first, without, label_names=[names[i] for i in known], tfidf=dataset.tfidf)
    )
    new = [[names[i] for i in ids] for ids in label_id_sets(Y[n:])]
    warm = model.update(texts[:2], new[:2])  # compiles
    assert warm.n_labels >= model.n_labels
    updated, update = timed(lambda: model.update(texts[n:], new))
    forgotten, forget = timed(lambda: updated.forget(rows=range(n, n + N_NEW)))
    reweighed, reweigh = timed(lambda: model.update(texts[n:], new, reweigh=True))
    ids = {label: i for i, label in enumerate(updated.label_names or ())}
    order = np.array([ids.get(label, -1) for label in names])
    at = Y.tocoo()
    all_Y = type(Y)((at.data, (at.row, order[at.col])), (Y.shape[0], updated.n_labels))
    X = normalise_rows(updated.examples(texts).X)
    X_test = stored_precision(normalise_rows(updated.examples(dataset.test.texts[:N_TEST]).X))
    weights = updated.network.learning_on.label_weights.numpy()
    counts = rare_label_weights(np.bincount(all_Y.indices, minlength=all_Y.shape[1]), updated.network.rare_label_boost)
    more: dict[str, Any] = {}
    fitted = fit_to_all(updated.network, X, all_Y, weights)
    if updated.network.one_hot:  # in an orbit, the weights of new labels depend on when these come
        steps = model
        for start in range(n, n + N_NEW, 10):
            steps = steps.update(texts[start : start + 10], new[start - n : start - n + 10])
        more["error of ten updates of 10 rows"] = errors(steps.network, fitted, X_test)
    return {
        "rows": n,
        "features": model.network.n_features,
        "labels": model.n_labels,
        "new labels": updated.n_labels - model.n_labels,
        "dim": model.network.out_features,
        "l2": model.network.learning_on.l2,
        "train": training,
        "train without the state": training_without,
        "update": update,
        "update with reweigh": reweigh,
        "forget": forget,
        "error of update": errors(updated.network, fitted, X_test),
        "error of update with reweigh": errors(
            reweighed.network, fit_to_all(reweighed.network, X, all_Y, counts), X_test
        ),
        "error of forget": errors(forgotten.network, model.network, X_test),
        **more,
        "bytes": file_bytes(model),
        "bytes without the state": file_bytes(fixed),
        "bytes of the state": sum(t.nbytes for t in model.network.learning_on.state_dict().values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("HOLOBIND_DATA", "../shared/data")))
    parser.add_argument("--only", choices=["default"], help="the default model alone, without `--update`")
    parser.add_argument("--label-trees", type=int, default=None, help="0 saves the time of trees, which do not change")
    options = parser.parse_args()
    results = {}
    for name in options.names:
        dataset = hb.data.load(options.data / name)
        results[name] = {"default": bench_default(dataset, options.label_trees)}
        if options.only is None:
            results[name] |= bench(dataset, options.label_trees)
        print(f"{name}: {json.dumps(results[name], indent=1)}", flush=True)
    print(json.dumps({"bench": "update", "threads": torch.get_num_threads(), "new rows": N_NEW, "results": results}))


if __name__ == "__main__":
    main()
