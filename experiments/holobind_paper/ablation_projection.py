"""The paper's ablation without the projection, complete.

What is learned (nothing, p and m, label vectors), with the projection and without it; the loss as the paper's equation
has it, which normalises label vectors (cosines), and as its listing has it, which does not; without the projection also
the approximate and the exact inverse, and label vectors from N(0, 1/d) and N(0, 1/d^2).
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

from holobind.heads import HolographicHead
from holobind_paper import heads, training
from holobind_paper import jobs as networks
from holobind_paper.datasets import Source
from holobind_paper.jobs import Job
from holobind_paper.result import NOT_RUN
from holobind_paper.training import Found

DATASETS = ("Bibtex", "Delicious")
LEARNED = {"fixed": (), "p and m learned": ("present", "missing"), "labels learned": ("labels",)}
LOSSES = {"equation": "query", "listing": "query-abs"}
INVERSES = ("approximate", "exact")
SCALES = {"1/d": 0, "1/d^2": 1}  # variance of the elements: 1/d times d^-power
RANKINGS = ("frequency", "chance")


def case_of(setup: str) -> dict[str, str]:
    """What a setup's name says."""
    learned, projection, loss, *rest = setup.split(", ")
    inverse, scale = rest or ("approximate", "1/d")
    return {"learned": learned, "projection": projection, "loss": loss, "inverse": inverse, "scale": scale}


def setups() -> list[str]:
    """All setups by name; those without projection also name the inverse and the initial variance."""
    names = [f"{learned}, projected, {loss}" for learned, loss in product(LEARNED, LOSSES)]
    for learned, loss, inverse, scale in product(LEARNED, LOSSES, INVERSES, SCALES):
        if learned != "labels learned" and loss == "equation" and scale != "1/d":
            continue  # cosines of fixed label vectors do not depend on their lengths
        names.append(f"{learned}, not projected, {loss}, {inverse}, {scale}")
    return names


def jobs(sources: Sequence[Source], quick: bool) -> list[Job]:
    wanted = []
    for source in sources:
        dim = networks.paper_dim(source.labels)
        for setup in setups():
            case = case_of(setup)
            projected = case["projection"] == "projected"
            options = networks.hrr_fc(
                dim,
                **networks.SHORT_OPTIONS | {"loss": LOSSES[case["loss"]], "trainable": LEARNED[case["learned"]]},
                codebook="random" if projected else "naive",
            )
            if case["learned"] == "labels learned":
                options["label_learning_rate"] = options["learning_rate"]  # the network's own, as in the released code
            if projected:
                wanted.append(Job(source, setup, options))
            else:
                variant = {"inverse": case["inverse"], "scale": case["scale"]}
                wanted.append(Job(source, setup, options, variant, heads.train_with(naive_head)))
        wanted += [training.ranking(kind, source) for kind in RANKINGS]
    return wanted


def naive_head(job: Job, inputs: int, n_labels: int) -> HolographicHead:
    """A head without any projection, with the inverse and the initial scale of the job."""
    options = heads.options_of(job)
    dim, seed, learned = options["dim"], options["seed"], "labels" in options["trainable"]
    scale = dim ** (-0.5 * SCALES[job.variant["scale"]])
    options["codebook"] = heads.scaled_naive(n_labels, dim, seed, scale, learned)
    options["trainable"] = tuple(name for name in options["trainable"] if name != "labels")  # the codebook has them
    kind = heads.ExactInverseHead if job.variant["inverse"] == "exact" else HolographicHead
    return kind(inputs, n_labels, **options)


def build(sources: Sequence[Source], found: Found, quick: bool) -> dict[str, Any]:
    names = [*setups(), *(training.BASELINES[kind] for kind in RANKINGS)]
    rows = [{"dataset": source.name, **training.means_of_setups(found, source.name, names)} for source in sources]
    for row in rows:
        row["final loss"] = {
            setup: min(cell["final loss"] for cell in found[row["dataset"], setup])
            for setup in setups()
            if found[row["dataset"], setup] and "final loss" in found[row["dataset"], setup][0]
        }
    return {
        "title": "Without the projection",
        "summary": summary(rows),
        "notes": [
            "The network is HRR-FC as in table 1, trained for "
            f"{networks.SHORT_OPTIONS['epochs']} epochs. A model's name says what is learned; whether vectors are "
            "projected; whether the loss is the paper's equation (cosines, so that label vectors are normalised) or "
            "its listing (they are not, and labels are ranked by |score|); and, without the projection, the inverse "
            "that unbinds p and m and the variance of the label vectors' elements at the start. Label vectors are "
            "learned at the network's learning rate. Label frequency predicts the most frequent labels for every row, "
            "random ranking predicts random labels.",
        ],
        "table": training.table_of_setups(rows),
        "rows": rows,
    }


def summary(rows: Sequence[dict[str, Any]]) -> str:
    text = []
    for row in rows:
        scores = {setup: found["P"][0] for setup, found in row["scores"].items()}
        projected = [score for setup, score in scores.items() if ", projected, " in setup]
        others = {setup: score for setup, score in scores.items() if ", not projected, " in setup}
        if projected and others:
            lowest = min(others, key=lambda setup: others[setup])
            text.append(
                f"{row['dataset']}: P@1 {min(projected):.1f} to {max(projected):.1f} with the projection, "
                f"{min(others.values()):.1f} ({lowest}) to {max(others.values()):.1f} without it"
            )
    return "; ".join(text) or NOT_RUN
