"""What the softmax of a holographic head gains by each of its parts, on rows held out of training.

    .venv/bin/python experiments/softmax_loss.py DATASET [--data DIR] [--dim 400 1000] [--seeds 3]

FC (512, 512) on an orbit, one part changed at a time: the crosstalk that the loss counts on, the prior, the temperature
it starts from, and the learning rates of the layers and of the one on features. A tenth of TRAIN is held out to measure
on, and of the rest another tenth to choose the epoch. The last line is JSON: means over seeds of P@1, P@5, PSP@1.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from holobind_paper.datasets import data_folder

import holobind as hb
from holobind import metrics
from holobind.data import Split
from holobind.heads.holographic import CROSSTALK, TEMPERATURE
from holobind.training import loop as train

AS_IT_IS: dict[str, Any] = {"crosstalk": CROSSTALK, "prior": True, "temperature": TEMPERATURE, "rates": (1e-3, 1e-2)}
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "crosstalk 0": {"crosstalk": 0.0},
    "crosstalk 0.3": {"crosstalk": 0.3},
    "crosstalk 3": {"crosstalk": 3.0},
    "no prior": {"prior": False},
    "temperature from 1": {"temperature": 1.0},
    "rates 0.001, 0.001": {"rates": (1e-3, 1e-3)},
    "rates 0.003, 0.003": {"rates": (3e-3, 3e-3)},
    "rates 0.001, 0.03": {"rates": (1e-3, 3e-2)},
    "none of it": {"crosstalk": 0.0, "prior": False, "temperature": 1.0, "rates": (3e-3, 3e-3)},
}
SHOWN = ("P@1", "P@5", "PSP@1")


def scored(
    kept: Split, held: Split, dim: int, seed: int, epochs: int, batch: int, parts: dict[str, Any]
) -> list[float]:
    seen = metrics.frequencies(kept.Y)
    order = np.argsort(-seen.counts, kind="stable").astype(np.int64)
    prior = hb.frequency_prior(torch.from_numpy(seen.counts[order])) if parts["prior"] else None
    head = hb.HolographicHead(512, len(order), dim, seed=seed, prior=prior, crosstalk=parts["crosstalk"])
    assert head.log_temperature is not None
    head.log_temperature.data.fill_(math.log(parts["temperature"]))
    model = hb.Model(hb.networks.FC(kept.X.shape[1], (512, 512), seed=seed), head, seen, order=order)
    rate, of_features = parts["rates"]
    plan = train.TrainConfig(
        epochs=epochs, batch_size=batch, learning_rate=rate, feature_learning_rate=of_features, patience=0, seed=seed
    )
    train.fit(model, model.examples(kept.X), kept.Y, plan)
    found = model.evaluate(held)
    return [found[name] for name in SHOWN]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="a folder of DATA")
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of datasets (default: HOLOBIND_DATA)")
    parser.add_argument("--dim", nargs="+", type=int, default=[400])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--only", nargs="+", default=list(VARIANTS), choices=list(VARIANTS), metavar="VARIANT")
    chosen = parser.parse_args()
    part = hb.data.load(chosen.data / chosen.dataset).train
    rows = np.random.default_rng(0).permutation(len(part))
    held, kept = (Split(part.X[some], part.Y[some]) for some in np.split(rows, [len(part) // 10]))
    found: dict[str, dict[int, dict[str, float]]] = {}
    for variant in chosen.only:
        for dim in chosen.dim:
            parts = AS_IT_IS | VARIANTS[variant]
            runs = [scored(kept, held, dim, seed, chosen.epochs, chosen.batch, parts) for seed in range(chosen.seeds)]
            means = dict(zip(SHOWN, np.mean(runs, 0).round(2).tolist(), strict=True))
            found.setdefault(variant, {})[dim] = means
            sys.stderr.write(f"{chosen.dataset}, d' = {dim}, {variant}: {means}\n")
    said = {"dataset": chosen.dataset, "seeds": chosen.seeds, "epochs": chosen.epochs, "batch": chosen.batch}
    sys.stdout.write(json.dumps(said | {"held out": found}) + "\n")


if __name__ == "__main__":
    main()
