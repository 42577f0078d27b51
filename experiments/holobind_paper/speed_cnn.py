"""The appendix's table of CNN times: execution and optimisation, CNN beside HRR-CNN, at the shapes of four datasets.

Execution is the forward pass of a batch in training; optimisation is the rest of its step: loss, gradients and Adam (by
rows for the word vectors). The network is `networks.XmlCnn`, the same for every head, so that it is timed once, its
step on a made-up gradient, and only the heads are raced with each other, on what it gave: linear with binary
cross-entropy (CNN), holographic with the paper's query loss (HRR-CNN), and with the softmax over all labels. Times are
the network's and the head's together. Both parts are of one race (`speed.race`): optimisation is a whole step less its
forward pass. Texts, of one length, and label sets are drawn by the power law of `speed`.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import holobind as hb
from holobind.data import Published
from holobind.data.batches import Tokens
from holobind.networks import XmlCnn
from holobind.training.loop import TrainConfig, optimisers
from holobind_paper import cells, published, result, speed

# By the paper's name in this table: the name of the dataset's shape, and the words of a text, which are the first 500
# of 1249, 2484, 247 and 247 on average.
DATASETS = {
    "EURLex-4K": ("EURLex-4K", 500),
    "Wiki10-31K": ("Wiki10-31K", 500),
    "AmazonCat-12K": ("Amazon-13K", 247),
    "Amazon-670K": ("Amazon-670K", 247),
}
QUICK = ("EURLex-4K",)
BATCH, VOCABULARY = 16, 50_000
PARTS = {"execution": "execution_s", "optimisation": "optimization_s"}  # and the paper's columns
HEADS: dict[str, Callable[[int, int, int], nn.Module]] = {
    "linear": lambda inside, labels, dim: hb.LinearHead(inside, labels),
    "query": lambda inside, labels, dim: hb.HolographicHead(inside, labels, dim, loss="query"),
    "softmax": lambda inside, labels, dim: hb.HolographicHead(inside, labels, dim, loss="softmax"),
}
Times = dict[str, float]  # of PARTS, in milliseconds


def run(out: Path, seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """Time all four shapes, one cell each, beside the paper's ratios."""
    started = time.monotonic()
    paper = {(row["dataset"], row["model"]): row for row in published.read("table_cnn_runtime")}
    dims = {row["dataset"]: int(row["hrr_dim"]) for row in published.read("table_datasets")}
    rounds = 2 if quick else speed.ROUNDS
    wanted = []
    for name in QUICK if quick else DATASETS:
        shape, words = DATASETS[name]
        key = {"dataset": name, "dim": dims[shape], "seed": seed, "rounds": rounds, "machine": result.machine()}
        compute = partial(times, hb.data.published(shape), dims[shape], words, seed, rounds)
        wanted.append(cells.Cell(key, compute))
    rows = cells.finish(out, "speed-cnn", wanted)
    for row in rows:
        ours = {
            kind: {part: row["network_ms"][part] + head[part] for part in PARTS}
            for kind, head in row["head_ms"].items()
        }
        row["ms"] = ours
        row["over_linear"] = {kind: {part: ours[kind][part] / ours["linear"][part] for part in PARTS} for kind in ours}
        hrr, cnn = (paper[row["dataset"], model] for model in ("HRR-CNN", "CNN"))
        row["paper"] = {part: float(hrr[column]) / float(cnn[column]) for part, column in PARTS.items()}
    below = {part: sum(row["over_linear"]["query"][part] < row["paper"][part] for row in rows) for part in PARTS}
    ratios = ", ".join(
        f"{row['dataset']} {row['over_linear']['query']['optimisation']:.2f} (the paper: "
        f"{row['paper']['optimisation']:.2f})"
        for row in rows
    )
    return result.save(
        out,
        "speed-cnn",
        _draw(rows),
        started,
        seed=seed,
        quick=quick,
        seconds=cells.seconds(rows),
        title="CNN runtime (appendix table)",
        summary=f"optimisation of HRR-CNN in times of CNN: {ratios}; less than the paper's at "
        f"{below['optimisation']} of {len(rows)}, and in execution at {below['execution']} of {len(rows)}",
        notes=[
            "Execution is the forward pass in training, optimisation the loss, the gradients and the update, each of a "
            f"batch of {BATCH} texts. `linear` is the paper's CNN, `query` its HRR-CNN, `softmax` our loss on the same "
            "holographic layer.",
            "The network is the same for all heads and is timed once; the heads are timed beside each other, and each "
            "time is the network's and a head's together. So heads that cost little beside the network come to "
            "a ratio near 1.",
            "Ratios are the time with a holographic head over that with the linear one: below 1 it is faster. The "
            "paper's are of whole epochs of its own implementation on a V100, ours of steps on this machine's "
            "processor. The texts are drawn: 500 words, or 247 where texts have that many on average.",
        ],
        table=_table(rows),
        rows=rows,
    )


def times(about: Published, dim: int, words: int, seed: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of execution and optimisation, of the network and of each head."""
    generator = result.generator(seed, about.name)
    network = XmlCnn(VOCABULARY, seed=seed)
    ids = 2 + speed.draw(VOCABULARY - 2, BATCH * words, generator)  # the first two are padding and unknown
    batch = Tokens(ids.view(BATCH, words), torch.full((BATCH,), words))
    labels = speed.sets(BATCH, about.labels, about.labels_a_point, generator)
    h = network(batch).detach().requires_grad_()
    made_up = torch.randn(h.shape, generator=generator)

    def loss() -> Tensor:
        return (network(batch) * made_up).sum()

    body = _race({"network": (network, partial(network, batch), loss)}, rounds)
    heads: dict[str, Any] = {kind: make(network.out_features, about.labels, dim) for kind, make in HEADS.items()}
    timed = _race(
        {kind: (head, partial(head, h), partial(head.loss, h, *labels)) for kind, head in heads.items()}, rounds
    )
    return {"labels": about.labels, "network_ms": body["network"], "head_ms": timed}


def _race(
    contenders: dict[str, tuple[nn.Module, Callable[[], Tensor], Callable[[], Tensor]]], rounds: int
) -> dict[str, Times]:
    """The times of modules, each with its forward pass and its loss, forward pass included."""
    steps: dict[tuple[str, str], Callable[[], object]] = {}
    for name, (module, forward, loss) in contenders.items():
        steps[name, "execution"] = forward
        steps[name, "step"] = speed.stepper(loss, optimisers(module, TrainConfig()))
    took = {step: 1e3 * seconds for step, seconds in speed.race(steps, rounds).items()}
    return {
        name: {"execution": took[name, "execution"], "optimisation": took[name, "step"] - took[name, "execution"]}
        for name in contenders
    }


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    header = ["dataset", "labels", "d'", "network, ms: " + " / ".join(PARTS)]
    header += [f"{part}, ms: {' / '.join(HEADS)}" for part in PARTS]
    header += [f"{part}, HRR / CNN: paper / query / softmax" for part in PARTS]
    lines = []
    for row in rows:
        over, paper = row["over_linear"], row["paper"]
        line = [row["dataset"], f"{row['labels']:,}", row["dim"]]
        line.append(" / ".join(f"{row['network_ms'][part]:.0f}" for part in PARTS))
        line += [" / ".join(f"{row['ms'][kind][part]:.1f}" for kind in HEADS) for part in PARTS]
        line += [f"{paper[p]:.2f} / {over['query'][p]:.2f} / {over['softmax'][p]:.2f}" for p in PARTS]
        lines.append(line)
    return result.table(header, lines)


def _draw(rows: list[dict[str, Any]]) -> Any:
    heights = {
        "the paper": [row["paper"]["optimisation"] for row in rows],
        "ours, query loss": [row["over_linear"]["query"]["optimisation"] for row in rows],
        "ours, softmax": [row["over_linear"]["softmax"]["optimisation"] for row in rows],
    }
    title = "Optimisation of a CNN with a holographic output layer, in times of a linear one's"
    return speed.bars(rows, heights, title, "time of HRR-CNN / time of CNN")
