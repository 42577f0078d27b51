"""Which labels share a base of the orbit codebook: what that is worth to a network with fewer outputs than labels.

    .venv/bin/python experiments/label_order.py [--data DIR] [--dataset delicious] [--dim 400] [--loss query]

The paper's network is trained on four fifths of the training part and measured on the rest, with labels numbered as
they come, at random, by frequency, which is what `hb.learn` does, and dealt out to the bases by frequency. The last
line is JSON.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from holobind_paper.datasets import data_folder

import holobind as hb
from holobind.data import Split
from holobind.training import learning

MEASURES = ("P@1", "P@5", "PSP@1")


def orders(counts: np.ndarray, dim: int, seed: int) -> dict[str, np.ndarray]:
    by_frequency = np.argsort(-counts, kind="stable")
    bases = -(-len(counts) // dim)
    return {
        "as numbered": np.arange(len(counts)),
        "at random": np.random.default_rng(seed).permutation(len(counts)),
        "by frequency": by_frequency,
        "dealt out": np.concatenate([by_frequency[base::bases] for base in range(bases)]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of datasets (default: HOLOBIND_DATA)")
    parser.add_argument("--dataset", default="delicious")
    parser.add_argument("--dim", type=int, default=400)
    parser.add_argument("--loss", default="query", choices=("query", "softmax"))
    parser.add_argument("--left-out", type=float, default=0.2, help="share of the features of a row, in a step")
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    part = hb.data.load(chosen.data / chosen.dataset).train
    runs: dict[str, list[list[float]]] = {}
    for seed in range(chosen.seeds):
        shuffled = np.random.default_rng(100 + seed).permutation(len(part))
        held, kept = np.split(shuffled, [len(part) // 5])
        train, test = (Split(part.X[rows], part.Y[rows]) for rows in (kept, held))
        config = hb.ModelConfig(
            network="fc", loss=chosen.loss, dim=chosen.dim, feature_dropout=chosen.left_out, seed=seed
        )  # fmt: skip
        for name, order in orders(np.asarray(train.Y.sum(0)), chosen.dim, seed).items():
            learning._label_order = lambda head, seen, label_order=order: order  # type: ignore[assignment, misc]
            found = hb.learn(train, config).evaluate(test)
            runs.setdefault(name, []).append([round(found[measure], 2) for measure in MEASURES])
            sys.stderr.write(f"seed {seed}, {name}: {runs[name][-1]}\n")
    means = {name: dict(zip(MEASURES, np.mean(some, 0).round(2).tolist(), strict=True)) for name, some in runs.items()}
    sys.stdout.write(json.dumps({**vars(chosen), "data": chosen.dataset, "means": means, "runs": runs}) + "\n")


if __name__ == "__main__":
    main()
