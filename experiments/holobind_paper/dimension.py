"""Figure 2 of the paper: P@5 as a function of d', with both codebooks and both losses."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holobind_paper import cells, result, training
from holobind_paper.training import Job

DATASETS = ("Wiki10-31K", "Amazon-13K", "Delicious-200K", "Amazon-670K", "tibkat-core-en", "python-calls-torch")
DIMENSIONS = (100, 400, 1000, 1750, 3000)  # below and above 10 % of the labels of the last two datasets
# The options of the softmax were chosen on rows held out of tibkat-core-en's train split, by P@5 (experiments/LOG.md).
LOSS_OPTIONS: dict[str, dict[str, Any]] = {
    "query": {"epochs": 5, "batch_size": 256},
    "softmax": {"epochs": 6, "batch_size": 256, "learning_rate": 1e-3, "feature_learning_rate": 1e-2},
}
CURVES = {
    f"{loss}, {codebook}": {"loss": loss, "codebook": codebook, **options}
    for loss, options in LOSS_OPTIONS.items()
    for codebook in ("orbit", "random")
}
PLATEAU = 0.95  # fraction of a curve's best P@5 at which its plateau begins


def run(
    out: Path, seed: int = 0, quick: bool = False, data: Path | None = None, only: Sequence[str] | None = None
) -> dict[str, Any]:
    """Train every d', codebook and loss once, with fewer and larger steps than in the other tables."""
    started = time.monotonic()
    sources = training.pick(data, only, quick, DATASETS)
    dimensions = DIMENSIONS[:2] if quick else DIMENSIONS
    jobs = [
        Job(source, f"{curve} {dim}", training.hrr_fc(dim, **options))
        for source in sources
        for curve, options in CURVES.items()
        for dim in dimensions
    ]
    trained = training.finish(out, "dimension", jobs, seed, quick, seeds=1)
    rows = [
        {
            "dataset": job.source.name,
            "curve": job.setup.rpartition(" ")[0],
            "dim": job.options["dim"],
            "labels": found["labels"],
            "P@1": found["scores"]["P"][0],
            "P@5": found["scores"]["P"][4],
            "PSP@1": found["scores"]["PSP"][0],
        }
        for job, found in zip(jobs, trained, strict=True)
    ]
    starts = plateaus(rows)
    early = sum(fraction <= 0.1 for fraction in starts.values())
    return result.save(
        out,
        "dimension",
        draw(rows),
        started,
        seed=seed,
        quick=quick,
        trials=1,
        command=training.command("dimension", seed, quick, data, only),
        seconds=cells.seconds(trained),
        title="Output dimension (figure 2)",
        summary=f"{early} of {len(starts)} curves reach {PLATEAU:.0%} of their best P@5 at a d' of at most 10 % of L",
        notes=[
            "To be affordable at every d', these networks are trained for 5 epochs (query loss) or 6 epochs (softmax) "
            "in batches of 256, with one seed. The softmax has the default learning rates of fc: 0.001, and 0.01 for "
            "the layer on features. On the orbit codebook label ids are sorted by frequency. The softmax has a prior "
            "of label frequencies (logit adjustment). Both are defaults of `hb.learn`.",
            "The plateau of a curve begins at the smallest d' of the grid with 95 % of its best P@5: "
            + "; ".join(f"{name}, {curve}: {fraction:.1%} of L" for (name, curve), fraction in starts.items())
            + ".",
        ],
        table=_table(rows),
        rows=rows,
    )


def plateaus(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """The smallest d' at which a curve has nearly its best P@5, as a fraction of the number of labels.

    A curve that ends below 10 % of the labels is left out: its plateau would begin below 10 % in any case.
    """
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        curves.setdefault((row["dataset"], row["curve"]), []).append(row)
    starts = {}
    for name, curve in curves.items():
        if len(curve) > 1 and max(row["dim"] / row["labels"] for row in curve) >= 0.1:
            threshold = PLATEAU * max(row["P@5"] for row in curve)
            starts[name] = min(row["dim"] / row["labels"] for row in curve if row["P@5"] >= threshold)
    return starts


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    dimensions = sorted({row["dim"] for row in rows})
    header = ["dataset", "labels", "loss, codebook", *(f"P@5 at d' = {dim}" for dim in dimensions)]
    lines: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        lines.setdefault((row["dataset"], f"{row['labels']:,}", row["curve"]), {})[row["dim"]] = row["P@5"]
    return result.table(
        header,
        [[*names, *(f"{at[dim]:.1f}" if dim in at else "" for dim in dimensions)] for names, at in lines.items()],
    )


def draw(rows: list[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["dataset"] for row in rows))
    dimensions = sorted({row["dim"] for row in rows})
    figure = Figure(figsize=(4.5 * len(names), 3.8), layout="constrained")
    for place, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), place + 1)
        for curve in CURVES:
            mine = [row for row in rows if (row["dataset"], row["curve"]) == (name, curve)]
            if mine:
                axes.plot([row["dim"] for row in mine], [row["P@5"] for row in mine], "o-", label=curve)
                labels = mine[0]["labels"]
        axes.axvline(0.1 * labels, color="grey", ls=":", lw=1)
        axes.set(
            title=f"{name}, {labels:,} labels",
            xlabel="d', dimensions of the output (dotted: 10 % of the labels)",
            ylabel="P@5 on test, percent",
        )
        axes.set_xscale("log")
        axes.set_xticks(dimensions, [str(dim) for dim in dimensions])
        axes.xaxis.set_minor_formatter("")
        axes.legend(fontsize=8, title="loss, codebook", title_fontsize=8)
    return figure
