"""The settings of the authors' released code, where they differ from the paper's text: `accuracy --preset authors`.

Two hidden layers of 768 with leaky ReLU; Adam at 0.001, times 0.7 after each epoch, for 25 epochs in batches of 64; the
checkpoint of least loss on a held-out tenth; rows of features are not scaled. HRR-FC: the listing's loss, label vectors
projected once, p and m learned and not projected again, labels ranked by |score|.

"FC, trained to its end" is the same FC with a constant learning rate, for as many epochs as its validation loss falls.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from holobind.data.batches import ragged_labels
from holobind.data.holdout import holdout
from holobind.heads import HolographicHead, LinearHead
from holobind_paper import heads, published, result, training
from holobind_paper import jobs as networks
from holobind_paper.datasets import Source
from holobind_paper.jobs import Job, Row
from holobind_paper.result import NOT_RUN
from holobind_paper.training import Found

DATASETS = ("Bibtex", "Delicious")
HIDDEN_UNITS, BATCH, RATE, EPOCHS = 768, 64, 1e-3, 25
DECAY = 0.7  # of the learning rate after each epoch
MAX_EPOCHS, PATIENCE = 60, 5  # of the network that is trained to its end
FC, FC_TO_THE_END, HRR_FC = "FC", "FC, trained to its end", "HRR-FC"


@dataclass(frozen=True)
class Schedule:
    epochs: int
    decay: float
    patience: int  # epochs without a lower validation loss; 0 for no end before `epochs`


SCHEDULES = {
    FC: Schedule(EPOCHS, DECAY, 0),
    HRR_FC: Schedule(EPOCHS, DECAY, 0),
    FC_TO_THE_END: Schedule(MAX_EPOCHS, 1.0, PATIENCE),
}


def jobs(sources: Sequence[Source], quick: bool) -> list[Job]:
    wanted = []
    for source in sources:
        wanted.append(training.ranking("frequency", source))
        dim = networks.paper_dim(source.labels)
        for setup in SCHEDULES:
            variant: dict[str, Any] = {"preset": "authors", "setup": setup}
            if quick:
                variant["epochs"] = networks.QUICK_EPOCHS
            shape: networks.Options = {"network": "fc", "hidden": (HIDDEN_UNITS,) * 2, "normalise": False}
            if setup == HRR_FC:
                shape |= {"loss": "query-abs", "codebook": "random", "dim": dim, "trainable": ("present", "missing")}
            else:
                shape |= {"head": "linear", "loss": "bce"}
            wanted.append(Job(source, setup, shape, variant, train))
    return wanted


def make_head(setup: str, n_labels: int, dim: int, seed: int) -> LinearHead | HolographicHead:
    if setup == HRR_FC:
        trainable: tuple[Literal["present", "missing"], ...] = ("present", "missing")
        return heads.FreeKeysHead(HIDDEN_UNITS, n_labels, dim, "random", "query-abs", seed, trainable)
    return LinearHead(HIDDEN_UNITS, n_labels, "bce", seed)


def train(job: Job, out: Path) -> Row:
    """Train one network as the released code does and evaluate it on the test split."""
    dataset, seed = training.load(job.source), job.options["seed"]
    assert dataset.test is not None
    setup, schedule = job.variant["setup"], SCHEDULES[job.variant["setup"]]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        body = nn.Sequential(
            *(nn.Linear(dataset.n_features, HIDDEN_UNITS), nn.LeakyReLU()),
            *(nn.Linear(HIDDEN_UNITS, HIDDEN_UNITS), nn.LeakyReLU()),
        )
        head = make_head(setup, dataset.n_labels, networks.paper_dim(job.source.labels), seed)
        X = torch.from_numpy(dataset.train.X.toarray()).float()

        def loss_of(rows: np.ndarray[Any, Any]) -> Tensor:
            return head.loss(body(X[rows]), *ragged_labels(dataset.train.Y, rows))

        kept, held = holdout(len(X), len(X) // 10, [seed, 1])
        epochs = job.variant.get("epochs", schedule.epochs)
        model = nn.ModuleList([body, head])
        losses = fit(model, loss_of, kept, held, epochs, schedule, np.random.default_rng(seed))
    with torch.inference_mode():
        rows = torch.from_numpy(dataset.test.X.toarray()).float().split(1024)
        top = torch.cat([head.top_k(body(some), min(5, dataset.n_labels))[1] for some in rows]).numpy()
    row = training.scored(dataset, top, job.source.name)
    return row | {"validation loss": losses, "best_epoch": int(np.argmin(losses)) + 1, "epochs_run": len(losses)}


def fit(
    model: nn.Module,
    loss_of: Callable[[np.ndarray[Any, Any]], Tensor],
    kept: np.ndarray[Any, Any],
    held: np.ndarray[Any, Any],
    epochs: int,
    schedule: Schedule,
    generator: np.random.Generator,
) -> list[float]:
    """Train in place; the model ends with the weights of least validation loss. Returns that loss for each epoch."""
    optimiser = torch.optim.Adam(model.parameters(), RATE)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimiser, schedule.decay)
    losses: list[float] = []
    best = deepcopy(model.state_dict())
    for epoch in range(epochs):
        order = generator.permutation(kept)
        for first in range(0, len(order), BATCH):
            optimiser.zero_grad()
            loss_of(order[first : first + BATCH]).backward()
            optimiser.step()
        decay.step()
        with torch.no_grad():
            total = sum(float(loss_of(held[i : i + 256])) * len(held[i : i + 256]) for i in range(0, len(held), 256))
        losses.append(total / max(1, len(held)))
        if losses[-1] <= min(losses):
            best = deepcopy(model.state_dict())
        if 0 < schedule.patience <= epoch - int(np.argmin(losses)):
            break
    model.load_state_dict(best)
    return losses


def build(sources: Sequence[Source], found: Found, quick: bool) -> dict[str, Any]:
    paper = {row["dataset"]: row for row in published.read("table_accuracy") if row["network"] == "FC"}
    names = [*SCHEDULES, training.BASELINES["frequency"]]
    rows: list[Row] = []
    for source in sources:
        row = {"dataset": source.name, **training.means_of_setups(found, source.name, names)}
        numbers = paper.get(source.name)
        columns = {FC: "baseline", HRR_FC: "hrr"}
        row["paper"] = {
            setup: {metric: float(numbers[f"{metric}_{column}"]) for metric in ("P@1", "PSP@1")}
            for setup, column in columns.items()
            if numbers
        }
        row["epochs"] = {
            setup: [(cell["best_epoch"], cell["epochs_run"]) for cell in found[source.name, setup]]
            for setup in SCHEDULES
        }
        rows.append(row)
    header = ["dataset", "model", "P@1, paper / ours", "P@5", "PSP@1, paper / ours", "PSP@5", "best epoch", "seeds"]
    lines = []
    for row in rows:
        for setup, texts in row["texts"].items():
            cells = []
            for metric in ("P@1", "P@5", "PSP@1", "PSP@5"):
                published_value = row["paper"].get(setup, {}).get(metric)
                cells.append(texts[metric] if published_value is None else f"{published_value:.1f} / {texts[metric]}")
            epochs = ", ".join(f"{best} of {count}" for best, count in row["epochs"].get(setup, ()))
            lines.append([row["dataset"], setup, *cells, epochs, row["seeds"][setup]])
    text = [
        f"{row['dataset']}: P@1 "
        + ", ".join(f"{row['scores'][name]['P'][0]:.1f} ({name})" for name in names if name in row["scores"])
        for row in rows
        if row["scores"]
    ]
    return {
        "title": "The released code's settings (`accuracy --preset authors`)",
        "summary": "; ".join(text) or NOT_RUN,
        "notes": [
            f"Two hidden layers of {HIDDEN_UNITS} with leaky ReLU, Adam at {RATE}, times {DECAY} after each epoch, "
            f"{EPOCHS} epochs in batches of {BATCH}, the checkpoint of least loss on a held-out "
            "tenth, rows of features "
            "as they are. HRR-FC has the loss of the listing; p and m are learned and not projected again; labels are "
            f'ranked by |score|. "{FC_TO_THE_END}" keeps the learning rate constant and stops after {PATIENCE} epochs '
            "without a lower validation loss. We average metrics over rows, the released code over batches."
        ],
        "table": result.table(header, lines),
        "rows": rows,
    }
