"""The appendix's table of CNN times: execution and optimisation of CNN and HRR-CNN, at the shapes of four datasets.

Execution is the forward pass of a batch in training. Optimisation is the rest of the training step: loss, gradients and
Adam (by rows for the word vectors), that is a whole step minus its forward pass. The network is `networks.XmlCnn`, the
same for every head. So it is timed once, with a random gradient of its output, and the heads are timed in turns on its
output: linear with binary cross-entropy (CNN), holographic with the paper's query loss (HRR-CNN), and holographic with
the softmax over all labels. The times in the table are those of the network plus the head. Texts, all of one length,
and label sets are random, by the power law of `speed`.
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
from holobind.data.batches import TokenBatch
from holobind.networks import XmlCnn
from holobind.training.config import TrainConfig
from holobind.training.optimiser import optimisers
from holobind_paper import cells, published, result, speed

# The paper's name in this table: the name of the dataset, and the words of a text. Texts have 1249, 2484, 247 and 247
# words on average, of which at most 500 are read.
DATASETS = {
    "EURLex-4K": ("EURLex-4K", 500),
    "Wiki10-31K": ("Wiki10-31K", 500),
    "AmazonCat-12K": ("Amazon-13K", 247),
    "Amazon-670K": ("Amazon-670K", 247),
}
QUICK_DATASETS = ("EURLex-4K",)
BATCH_SIZE, VOCAB_SIZE = 16, 50_000
RESERVED_IDS = 2  # padding and unknown words
PHASES = {"execution": "execution_s", "optimisation": "optimization_s"}  # and the paper's columns
HEADS: dict[str, Callable[[int, int, int], nn.Module]] = {
    "linear": lambda in_features, labels, dim: hb.LinearHead(in_features, labels),
    "query": lambda in_features, labels, dim: hb.HolographicHead(in_features, labels, dim, loss="query"),
    "softmax": lambda in_features, labels, dim: hb.HolographicHead(in_features, labels, dim, loss="softmax"),
}
Times = dict[str, float]  # of PHASES, in milliseconds


def run(out: Path, seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """Time all four shapes, one cell each, next to the paper's ratios."""
    started = time.monotonic()
    paper = {(row["dataset"], row["model"]): row for row in published.read("table_cnn_runtime")}
    dims = {row["dataset"]: int(row["hrr_dim"]) for row in published.read("table_datasets")}
    rounds = speed.QUICK_ROUNDS if quick else speed.ROUNDS
    wanted = []
    for name in QUICK_DATASETS if quick else DATASETS:
        shape, words = DATASETS[name]
        key = {"dataset": name, "dim": dims[shape], "seed": seed, "rounds": rounds, "machine": result.machine()}
        compute = partial(times, hb.data.published(shape), dims[shape], words, seed, rounds)
        wanted.append(cells.Cell(key, compute))
    rows = cells.finish(out, "speed-cnn", wanted)
    for row in rows:
        ours = {
            kind: {phase: row["network_ms"][phase] + head[phase] for phase in PHASES}
            for kind, head in row["head_ms"].items()
        }
        row["ms"] = ours
        row["ratio_to_linear"] = {
            kind: {phase: ours[kind][phase] / ours["linear"][phase] for phase in PHASES} for kind in ours
        }
        hrr, cnn = (paper[row["dataset"], model] for model in ("HRR-CNN", "CNN"))
        row["paper"] = {phase: float(hrr[column]) / float(cnn[column]) for phase, column in PHASES.items()}
    below = {
        phase: sum(row["ratio_to_linear"]["query"][phase] < row["paper"][phase] for row in rows) for phase in PHASES
    }
    ratios = ", ".join(
        f"{row['dataset']} {row['ratio_to_linear']['query']['optimisation']:.2f} (the paper: "
        f"{row['paper']['optimisation']:.2f})"
        for row in rows
    )
    return result.save(
        out,
        "speed-cnn",
        draw(rows),
        started,
        seed=seed,
        quick=quick,
        seconds=cells.seconds(rows),
        title="CNN runtime (appendix table)",
        summary=f"time of HRR-CNN / time of CNN in optimisation: {ratios}; lower than the paper's on "
        f"{below['optimisation']} of {len(rows)} datasets, and in execution on {below['execution']} of {len(rows)}",
        notes=[
            "Execution is the forward pass in training. Optimisation is the loss, the gradients and the update. Both "
            f"are of a batch of {BATCH_SIZE} texts. `linear` is the paper's CNN, `query` its HRR-CNN, `softmax` our "
            "loss on the same holographic head.",
            "The network is the same for all heads and is timed once; the heads are timed in turns. Each time is that "
            "of the network plus a head, so a head that is fast compared with the network has a ratio near 1.",
            "A ratio is the time with a holographic head divided by that with the linear one: below 1 it is faster. "
            "The paper measured whole epochs of its own implementation on a V100 GPU; we measure steps on a CPU. The "
            "texts are random and have 500 words, or 247 where the texts of the dataset have 247 on average.",
        ],
        table=_table(rows),
        rows=rows,
    )


def times(shape: Published, dim: int, words: int, seed: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of execution and optimisation of the network and of each head."""
    generator = result.generator(seed, shape.name)
    network = XmlCnn(VOCAB_SIZE, seed=seed)
    ids = RESERVED_IDS + speed.random_ids(VOCAB_SIZE - RESERVED_IDS, BATCH_SIZE * words, generator)
    batch = TokenBatch(ids.view(BATCH_SIZE, words), torch.full((BATCH_SIZE,), words))
    labels = speed.random_sets(BATCH_SIZE, shape.labels, shape.labels_per_point, generator)
    h = network(batch).detach().requires_grad_()
    gradient = torch.randn(h.shape, generator=generator)

    def loss() -> Tensor:
        return (network(batch) * gradient).sum()

    network_times = _time({"network": (network, partial(network, batch), loss)}, rounds)
    heads: dict[str, Any] = {kind: make(network.out_features, shape.labels, dim) for kind, make in HEADS.items()}
    head_times = _time(
        {kind: (head, partial(head, h), partial(head.loss, h, *labels)) for kind, head in heads.items()}, rounds
    )
    return {"labels": shape.labels, "network_ms": network_times["network"], "head_ms": head_times}


def _time(
    timed: dict[str, tuple[nn.Module, Callable[[], Tensor], Callable[[], Tensor]]], rounds: int
) -> dict[str, Times]:
    """The times of modules, each given with its forward pass and its loss; the loss includes the forward pass."""
    steps: dict[tuple[str, str], Callable[[], object]] = {}
    for name, (module, forward, loss) in timed.items():
        steps[name, "execution"] = forward
        steps[name, "step"] = speed.training_step(loss, optimisers(module, TrainConfig()))
    seconds = speed.step_seconds(steps, rounds)
    return {
        name: {
            "execution": 1e3 * seconds[name, "execution"],
            "optimisation": 1e3 * seconds[name, "step"] - 1e3 * seconds[name, "execution"],
        }
        for name in timed
    }


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    header = ["dataset", "labels", "d'", "network, ms: " + " / ".join(PHASES)]
    header += [f"{phase}, ms: {' / '.join(HEADS)}" for phase in PHASES]
    header += [f"{phase}, HRR / CNN: paper / query / softmax" for phase in PHASES]
    lines = []
    for row in rows:
        ratio, paper = row["ratio_to_linear"], row["paper"]
        line = [row["dataset"], f"{row['labels']:,}", row["dim"]]
        line.append(" / ".join(f"{row['network_ms'][phase]:.0f}" for phase in PHASES))
        line += [" / ".join(f"{row['ms'][kind][phase]:.1f}" for kind in HEADS) for phase in PHASES]
        line += [f"{paper[p]:.2f} / {ratio['query'][p]:.2f} / {ratio['softmax'][p]:.2f}" for p in PHASES]
        lines.append(line)
    return result.table(header, lines)


def draw(rows: list[dict[str, Any]]) -> Any:
    heights = {
        "the paper": [row["paper"]["optimisation"] for row in rows],
        "query": [row["ratio_to_linear"]["query"]["optimisation"] for row in rows],
        "softmax": [row["ratio_to_linear"]["softmax"]["optimisation"] for row in rows],
    }
    title = "Optimisation time of a CNN with a holographic head, relative to a linear head"
    return speed.draw_ratios(rows, heights, title, "time of HRR-CNN / time of CNN, optimisation")
