"""Does one second moment a row cost accuracy? RowAdam beside lazy and dense Adam, on rows held out of training.

    .venv/bin/python experiments/row_moments.py bibtex|tibkat-core-en [--data ../shared/data] [--seeds 3]

An FC network (512, 512) with a holographic head and the softmax loss; only the optimiser of its first, sparse layer
changes: `rows` is RowAdam, `lazy` torch's SparseAdam (a second moment for every weight, updated where its row
occurred), `dense` Adam on the dense gradient. Each takes its best learning rate; the figure is P@1 of the best epoch
on rows held out of TRAIN, mean over seeds.
"""

import argparse
import json
from pathlib import Path

import torch

import holobind as hb
from holobind import metrics
from holobind.training import loop as train
from holobind.training.optimiser import RowAdam


class Dense(torch.optim.Adam):
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None if p.grad is None else p.grad.to_dense()
        return super().step(closure)


CONTENDERS = {"rows": RowAdam, "lazy": torch.optim.SparseAdam, "dense": lambda p, lr: Dense(p, lr, fused=True)}
RATES = (1e-3, 3e-3, 1e-2)


def best(part, kind, rate, seed, epochs, batch):
    usual = train.optimisers

    def chosen(model, plan):
        return [
            CONTENDERS[kind](o.param_groups[0]["params"], plan.learning_rate) if isinstance(o, RowAdam) else o
            for o in usual(model, plan)
        ]

    train.optimisers = chosen
    try:
        labels = part.Y.shape[1]
        head = hb.HolographicHead(512, labels, hb.default_dim(labels), seed=seed)
        network = hb.networks.FC(part.X.shape[1], (512, 512), seed=seed)
        model = hb.Model(network, head, metrics.frequencies(part.Y))
        plan = train.TrainConfig(epochs=epochs, batch_size=batch, learning_rate=rate, patience=0, seed=seed)
        return train.fit(model, model.examples(part.X), part.Y, plan).best
    finally:
        train.optimisers = usual


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=["bibtex", "tibkat-core-en"])
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--kind", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--rate", nargs="+", type=float, default=list(RATES))
    chosen = parser.parse_args()
    part = hb.data.load(chosen.data / chosen.dataset).train
    found = {}
    for kind in chosen.kind:
        means = {}
        for rate in chosen.rate:
            scores = [best(part, kind, rate, seed, chosen.epochs, chosen.batch) for seed in range(chosen.seeds)]
            means[rate] = round(sum(scores) / len(scores), 2)
            print(kind, rate, [round(s, 2) for s in scores], flush=True)  # noqa: T201
        found[kind] = {"P@1": max(means.values()), "by rate": means}
    print(json.dumps({"dataset": chosen.dataset, "seeds": chosen.seeds, "held out": found}))  # noqa: T201


if __name__ == "__main__":
    main()
