"""Ablation of the softmax loss of a holographic head, on held-out rows.

    .venv/bin/python experiments/softmax_loss.py DATASET [--data DIR] [--dim 400 1000] [--seeds 3]

FC (512, 512) on an orbit codebook, one setting changed at a time: the weight of the crosstalk, the prior (logit
adjustment), the initial temperature, and the learning rates of the dense layers and of the first one (sparse
features). A tenth of TRAIN is held out for evaluation, and a tenth of the rest to choose the epoch. The last line is
JSON: means over seeds of P@1, P@5, PSP@1.
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
from holobind.data import Split
from holobind.heads.holographic import DEFAULT_CROSSTALK, INITIAL_TEMPERATURE
from holobind.training import loop

DEFAULT: dict[str, Any] = {
    "crosstalk": DEFAULT_CROSSTALK,
    "prior": True,
    "temperature": INITIAL_TEMPERATURE,
    "learning rates": (1e-3, 1e-2),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "crosstalk 0": {"crosstalk": 0.0},
    "crosstalk 0.3": {"crosstalk": 0.3},
    "crosstalk 3": {"crosstalk": 3.0},
    "no prior": {"prior": False},
    "initial temperature 1": {"temperature": 1.0},
    "learning rates 0.001, 0.001": {"learning rates": (1e-3, 1e-3)},
    "learning rates 0.003, 0.003": {"learning rates": (3e-3, 3e-3)},
    "learning rates 0.001, 0.03": {"learning rates": (1e-3, 3e-2)},
    "none of these": {"crosstalk": 0.0, "prior": False, "temperature": 1.0, "learning rates": (3e-3, 3e-3)},
}
METRICS = ("P@1", "P@5", "PSP@1")


def train_and_evaluate(
    kept: Split, held_out: Split, dim: int, seed: int, epochs: int, batch_size: int, settings: dict[str, Any]
) -> list[float]:
    frequencies = metrics.frequencies(kept.Y)
    order = np.argsort(-frequencies.counts, kind="stable").astype(np.int64)
    head = hb.HolographicHead(512, len(order), dim, seed=seed, crosstalk=settings["crosstalk"])
    if settings["prior"]:
        head.set_prior(torch.from_numpy(frequencies.counts[order]))
    head.set_temperature(settings["temperature"])
    network = hb.networks.FC(kept.X.shape[1], (512, 512), seed=seed)
    model = hb.Model(network, head, frequencies, label_order=order)
    learning_rate, feature_learning_rate = settings["learning rates"]
    config = hb.TrainConfig(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        feature_learning_rate=feature_learning_rate,
        patience=0,
        seed=seed,
    )
    loop.fit(model, model.examples(kept.X), kept.Y, config)
    evaluation = model.evaluate(held_out)
    return [evaluation[metric] for metric in METRICS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="name of a folder in DIR")
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of datasets (default: HOLOBIND_DATA)")
    parser.add_argument("--dim", nargs="+", type=int, default=[400])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=256, help="rows of a step")
    parser.add_argument("--only", nargs="+", default=list(VARIANTS), choices=list(VARIANTS), metavar="VARIANT")
    args = parser.parse_args()
    split = hb.data.load(args.data / args.dataset).train
    shuffled = np.random.default_rng(0).permutation(len(split))
    held_out, kept = (Split(split.X[rows], split.Y[rows]) for rows in np.split(shuffled, [len(split) // 10]))
    results: dict[str, dict[int, dict[str, float]]] = {}
    for variant in args.only:
        for dim in args.dim:
            settings = DEFAULT | VARIANTS[variant]
            runs = [
                train_and_evaluate(kept, held_out, dim, seed, args.epochs, args.batch, settings)
                for seed in range(args.seeds)
            ]
            means = dict(zip(METRICS, np.mean(runs, 0).round(2).tolist(), strict=True))
            results.setdefault(variant, {})[dim] = means
            sys.stderr.write(f"{args.dataset}, d' = {dim}, {variant}: {means}\n")
    options = {"dataset": args.dataset, "seeds": args.seeds, "epochs": args.epochs, "batch": args.batch}
    sys.stdout.write(json.dumps(options | {"held out": results}) + "\n")


if __name__ == "__main__":
    main()
