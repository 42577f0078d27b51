"""Compile the kernels before they are needed.

Kernels are compiled when they are first called, which takes several seconds, and kept in a cache (`_jit`). `warm` calls
them on small data, so that the cache has all of them: in an image of a container, or after an installation.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from holobind._types import ProgressCallback
from holobind.codebooks import OrbitCodebook
from holobind.codebooks._limits import MIN_SCORES_FOR_COMPILED_TOP_K
from holobind.codebooks.orbit import COMPILED_DIM, MIN_COMPILED_ROWS
from holobind.codebooks.ranking import stable_topk
from holobind.data import Split, load
from holobind.data.csr import from_label_ids, normalise_rows
from holobind.data.sparse_text import parse_features
from holobind.ridge_knn import KnnIndex, RidgeKnn, solve_ridge
from holobind.ridge_knn.fit_forest import fit_forest
from holobind.ridge_knn.network import default_codebook
from holobind.training import ModelConfig, TrainConfig, learn

N_ROWS, N_FEATURES, N_LABELS = 60, 200, 12
DENSITY = 0.04  # sparse enough for the compiled Gram matrix


@dataclass(frozen=True)
class Warmed:
    """What `warm` did.

    compiled    kernels that were compiled, by module and name, with the number of their versions for different types
    cached      kernels that the cache had already
    directory   of the cache; None: the kernels are only in this process
    """

    compiled: dict[str, int]
    cached: dict[str, int]
    directory: Path | None
    seconds: float


def warm(*, training: bool = False, on_progress: ProgressCallback | None = None) -> Warmed:
    """Compile the kernels of the default model, of its training and prediction, and of reading files.

    training   also those of networks that are trained by gradient descent
    """
    began = time.perf_counter()
    report = on_progress or (lambda description, fraction: None)
    draw = np.random.default_rng(0)
    dense = draw.random((N_ROWS, N_FEATURES)) < DENSITY
    lines = [" ".join(f"{i}:{0.5 + i:g}" for i in np.flatnonzero(row)) for row in dense]
    sets = [sorted(draw.choice(N_LABELS, 2, replace=False).tolist()) for _ in lines]
    Y = from_label_ids(sets, N_LABELS)
    report("compiling: reading files", 0.0)
    with TemporaryDirectory() as directory:
        file = Path(directory) / "data.txt"
        body = [f"{','.join(map(str, labels))} {line}" for labels, line in zip(sets, lines, strict=True)]
        file.write_text("\n".join([f"{N_ROWS} {N_FEATURES} {N_LABELS}", *body]) + "\n", encoding="utf-8")
        X = normalise_rows(load(file, cache=False).train.X)
    parse_features([line.encode() for line in lines[:2]], N_FEATURES, "warm")
    texts = [" ".join(f"word{i}" for i in np.flatnonzero(row)) for row in dense]
    for done, config in enumerate(
        (ModelConfig(knn_weight=1.0, update=True), ModelConfig(dim=4, knn_weight=1.0, label_trees=1), ModelConfig())
    ):
        report("compiling: the default model", (done + 1) / 4)
        model = learn(Split(X, Y, texts), config)
        model.rank(model.inputs_of(Split(X, Y, texts)), 3)
        model.labels_above(texts if model.reads_texts else X)
    report("compiling: large data and trees", 0.9)
    stable_topk(torch.rand(2, MIN_SCORES_FOR_COMPILED_TOP_K), 5)
    OrbitCodebook(COMPILED_DIM, COMPILED_DIM).top_k(torch.rand(MIN_COMPILED_ROWS, COMPILED_DIM), 5)
    KnnIndex(X, np.ones(N_FEATURES, np.float32), min_sorted_rows=0).search(X, 3)
    solution = solve_ridge(X, Y, default_codebook(N_LABELS, N_LABELS, 0), 0.1, direct=False)  # conjugate gradients
    forest = fit_forest(X, Y, n_trees=2)
    RidgeKnn.from_weights(
        solution.weights, solution.bias, X, Y, knn_weight=1.0, forest=forest, forest_weight=0.5
    ).encode(X)
    if training:
        report("compiling: training of networks", 0.95)
        for loss in ("softmax", "query"):
            config = ModelConfig(network="fc", loss=loss, hidden=(4,), dim=8)
            learn(Split(X, Y), config, TrainConfig(epochs=1))
    compiled, cached, directories = {}, {}, []
    for name, kernel in _kernels():
        if n := sum(kernel.stats.cache_misses.values()):
            compiled[name] = n
        elif n := sum(kernel.stats.cache_hits.values()):
            cached[name] = n
        if kernel.stats.cache_path and n:
            directories.append(kernel.stats.cache_path)
    directory_found = Path(directories[0]) if directories else None
    return Warmed(compiled, cached, directory_found, time.perf_counter() - began)


def _kernels() -> Iterator[tuple[str, Any]]:
    """The compiled functions of all modules that are loaded, each once, by module and name."""
    seen: set[int] = set()
    for module_name, module in sorted(sys.modules.items()):
        if not module_name.startswith("holobind."):
            continue
        for value in list(vars(module).values()):
            if hasattr(value, "stats") and hasattr(value, "py_func") and id(value) not in seen:
                seen.add(id(value))
                yield f"{value.py_func.__module__.removeprefix('holobind.')}.{value.py_func.__name__}", value
