"""Accuracy with one second moment per row: RowAdam against lazy and dense Adam, on held-out rows.

    .venv/bin/python experiments/row_moments.py bibtex|tibkat-core-en [--data DIR] [--seeds 3]

An FC network (512, 512) with a holographic head and the softmax loss; only the optimiser of its first, sparse layer
changes. `rows` is RowAdam. `lazy` is torch's SparseAdam: one second moment per weight, updated where its row occurred.
`dense` is Adam on the dense gradient. Each optimiser uses its best learning rate. The result is P@1 of the best epoch
on rows held out of the training split, mean over seeds. DIR is by default the folder that HOLOBIND_DATA names. The
last line printed is JSON.
"""

import argparse
import json
from pathlib import Path

import torch
from holobind_paper.datasets import data_folder

import holobind as hb
from holobind import metrics
from holobind.ridge_knn.ridge import default_dim
from holobind.training import loop
from holobind.training.optimiser import RowAdam


class DenseAdam(torch.optim.Adam):
    """Adam that makes sparse gradients dense."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None if p.grad is None else p.grad.to_dense()
        return super().step(closure)


OPTIMISERS = {"rows": RowAdam, "lazy": torch.optim.SparseAdam, "dense": lambda p, lr: DenseAdam(p, lr, fused=True)}
LEARNING_RATES = (1e-3, 3e-3, 1e-2)


def best_precision(split, name, learning_rate, seed, epochs, batch_size):
    """Validation P@1 of the best epoch with one optimiser."""
    original = loop.optimisers

    def replaced(model, config):
        return [
            OPTIMISERS[name](o.param_groups[0]["params"], config.learning_rate) if isinstance(o, RowAdam) else o
            for o in original(model, config)
        ]

    loop.optimisers = replaced
    try:
        n_labels = split.Y.shape[1]
        head = hb.HolographicHead(512, n_labels, default_dim(n_labels), seed=seed)
        network = hb.networks.FC(split.X.shape[1], (512, 512), seed=seed)
        model = hb.Model(network, head, metrics.frequencies(split.Y))
        config = hb.TrainConfig(
            epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, patience=0, seed=seed
        )
        return loop.fit(model, model.examples(split.X), split.Y, config).best
    finally:
        loop.optimisers = original


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=["bibtex", "tibkat-core-en"])
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of datasets (default: HOLOBIND_DATA)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--optimiser", nargs="+", default=list(OPTIMISERS), choices=list(OPTIMISERS))
    parser.add_argument("--rate", nargs="+", type=float, default=list(LEARNING_RATES))
    options = parser.parse_args()
    split = hb.data.load(options.data / options.dataset).train
    found = {}
    for name in options.optimiser:
        means = {}
        for rate in options.rate:
            scores = [
                best_precision(split, name, rate, seed, options.epochs, options.batch) for seed in range(options.seeds)
            ]
            means[rate] = round(sum(scores) / len(scores), 2)
            print(name, rate, [round(s, 2) for s in scores], flush=True)  # noqa: T201
        found[name] = {"P@1": max(means.values()), "by rate": means}
    print(json.dumps({"dataset": options.dataset, "seeds": options.seeds, "held out": found}))  # noqa: T201


if __name__ == "__main__":
    main()
