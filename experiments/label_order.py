"""Which labels should share a base of the orbit codebook, for a network with fewer outputs than labels?

    .venv/bin/python experiments/label_order.py [--data DIR] [--dataset delicious] [--dim 400] [--loss query]

The paper's network is trained on four fifths of the training split and evaluated on the rest, with label ids in four
orders: as in the dataset, at random, by frequency (as in `hb.learn`), and by frequency in turn over the bases, so that
each base gets some of the frequent labels. The last line is JSON.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from holobind_paper.datasets import data_folder

import holobind as hb
from holobind import metrics
from holobind._types import IntArray
from holobind.data import Split
from holobind.training import loop

METRICS = ("P@1", "P@5", "PSP@1")
HIDDEN = (512, 512)


def label_orders(counts: IntArray, dim: int, seed: int) -> dict[str, IntArray]:
    by_frequency = np.argsort(-counts, kind="stable")
    n_bases = -(-len(counts) // dim)
    return {
        "as in the dataset": np.arange(len(counts)),
        "at random": np.random.default_rng(seed).permutation(len(counts)),
        "by frequency": by_frequency,
        "in turn over the bases": np.concatenate([by_frequency[base::n_bases] for base in range(n_bases)]),
    }


def train(split: Split, order: IntArray, dim: int, loss: Any, feature_dropout: float, seed: int) -> hb.Model:
    """The model that `hb.learn` trains, with another order of labels."""
    frequencies = metrics.frequencies(split.Y)
    head = hb.HolographicHead(HIDDEN[-1], len(order), dim, loss=loss, seed=seed)
    head.set_prior(torch.from_numpy(frequencies.counts[order]))
    network = hb.networks.FC(split.X.shape[1], HIDDEN, feature_dropout=feature_dropout, seed=seed)
    model = hb.Model(network, head, frequencies, label_order=order)
    config = hb.TrainConfig(seed=seed).resolve(len(split), hb.ModelConfig(network="fc", loss=loss))
    loop.fit(model, model.examples(split.X), split.Y, config)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of datasets (default: HOLOBIND_DATA)")
    parser.add_argument("--dataset", default="delicious")
    parser.add_argument("--dim", type=int, default=400)
    parser.add_argument("--loss", default="query", choices=("query", "softmax"))
    parser.add_argument("--feature-dropout", type=float, default=0.2, help="fraction of a row's features, in a step")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    split = hb.data.load(args.data / args.dataset).train
    runs: dict[str, list[list[float]]] = {}
    for seed in range(args.seeds):
        shuffled = np.random.default_rng(100 + seed).permutation(len(split))
        held_out, kept = (Split(split.X[rows], split.Y[rows]) for rows in np.split(shuffled, [len(split) // 5]))
        for name, order in label_orders(metrics.frequencies(kept.Y).counts, args.dim, seed).items():
            model = train(kept, order, args.dim, args.loss, args.feature_dropout, seed)
            evaluation = model.evaluate(held_out)
            runs.setdefault(name, []).append([round(evaluation[metric], 2) for metric in METRICS])
            sys.stderr.write(f"seed {seed}, {name}: {runs[name][-1]}\n")
    means = {name: dict(zip(METRICS, np.mean(rows, 0).round(2).tolist(), strict=True)) for name, rows in runs.items()}
    sys.stdout.write(json.dumps({**vars(args), "data": args.dataset, "means": means, "runs": runs}) + "\n")


if __name__ == "__main__":
    main()
