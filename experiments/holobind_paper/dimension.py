"""Figure 2 of the paper: P@5 as a function of d', with both codebooks and both losses, on one dataset up to d' = L."""

from collections.abc import Sequence
from typing import Any

from holobind_paper import jobs as networks
from holobind_paper import result
from holobind_paper.datasets import Source
from holobind_paper.jobs import Job
from holobind_paper.result import NOT_RUN
from holobind_paper.training import Found

DATASETS = ("tibkat-core-en", "gutenberg-lcsh", "yso-en", "python-calls-torch")
MIN_LABELS = networks.MAX_LABELS_OF_SMALL_DATASETS + 1  # with fewer, most d' are above a tenth of them
DIMENSIONS = (100, 400, 1000, 1750, 3000)  # below and above 10 % of the labels of tibkat-core-en
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
# Points that not every curve has: up to d' = L on one dataset, fewer where each takes long.
POINTS: dict[tuple[str, str], tuple[int, ...]] = {
    ("tibkat-core-en", "query, orbit"): (*DIMENSIONS, 6000, 12000, 17569),
    ("gutenberg-lcsh", "query, orbit"): (100, 400, 1000, 3000, 4200),
    ("gutenberg-lcsh", "query, random"): (100, 400, 1000, 3000),
    ("gutenberg-lcsh", "softmax, orbit"): (),
    ("gutenberg-lcsh", "softmax, random"): (),
    ("yso-en", "query, orbit"): (400, 2500),
    ("yso-en", "query, random"): (),
    ("yso-en", "softmax, orbit"): (),
    ("yso-en", "softmax, random"): (),
}
EPOCHS = {"yso-en": 2}
PLATEAU = 0.95  # fraction of a curve's best P@5 at which its plateau begins
MIN_LAST_POINT = 0.15  # of the labels: a curve that ends sooner does not show whether it would rise


def points(dataset: str, curve: str, quick: bool) -> Sequence[int]:
    return DIMENSIONS[:2] if quick else POINTS.get((dataset, curve), DIMENSIONS)


def jobs(sources: Sequence[Source], quick: bool) -> list[Job]:
    return [
        Job(
            source,
            f"{curve} {dim}",
            networks.hrr_fc(dim, **options | ({"epochs": EPOCHS[source.name]} if source.name in EPOCHS else {})),
            seeds=1,
        )
        for source in sources
        for curve, options in CURVES.items()
        for dim in points(source.name, curve, quick)
    ]


def build(sources: Sequence[Source], found: Found, quick: bool) -> dict[str, Any]:
    rows = []
    for source in sources:
        for curve in CURVES:
            for dim in points(source.name, curve, quick):
                row: dict[str, Any] = {"dataset": source.name, "curve": curve, "dim": dim, "labels": source.labels}
                for cell in found[source.name, f"{curve} {dim}"]:
                    scores = cell["scores"]
                    row |= {"P@1": scores["P"][0], "P@5": scores["P"][-1], "PSP@1": scores["PSP"][0]}
                rows.append(row)
    starts = plateaus(rows)
    early = sum(fraction <= 0.1 for fraction in starts.values())
    summary = f"{early} of {len(starts)} curves reach {PLATEAU:.0%} of their best P@5 at a d' of at most 10 % of L"
    notes = [
        "To be affordable at every d', these networks are trained for 5 epochs (query loss; 2 on yso-en) or 6 epochs "
        "(softmax) in batches of 256, with one seed. The softmax has the default learning rates of fc: 0.001, and 0.01 "
        "for the layer on features. On the orbit codebook label ids are sorted by frequency. The softmax has a prior "
        "of label frequencies (logit adjustment). Both are defaults of `hb.learn`. The curve of the query loss on the "
        "orbit codebook goes up to d' = L on tibkat-core-en.",
    ]
    if starts:
        notes.append(
            f"The plateau of a curve begins at the smallest d' of the grid with {PLATEAU:.0%} of its best P@5: "
            + "; ".join(f"{name}, {curve}: {fraction:.1%} of L" for (name, curve), fraction in starts.items())
            + "."
        )
    return {
        "title": "Output dimension (figure 2)",
        "summary": summary if starts else NOT_RUN,
        "notes": notes,
        "table": _table(rows),
        "rows": rows,
        "figure": draw([row for row in rows if "P@5" in row]),
    }


def plateaus(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """The smallest d' at which a curve has nearly its best P@5, as a fraction of the number of labels.

    A curve without a point well above 10 % of the labels is left out: its plateau would begin there in any case. So is
    one with points that are not run yet.
    """
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        curves.setdefault((row["dataset"], row["curve"]), []).append(row)
    starts = {}
    for name, curve in curves.items():
        complete = len(curve) > 1 and all("P@5" in row for row in curve)
        if complete and max(row["dim"] / row["labels"] for row in curve) >= MIN_LAST_POINT:
            threshold = PLATEAU * max(row["P@5"] for row in curve)
            starts[name] = min(row["dim"] / row["labels"] for row in curve if row["P@5"] >= threshold)
    return starts


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    dimensions = sorted({row["dim"] for row in rows})
    header = ["dataset", "labels", "loss, codebook", *(f"P@5 at d' = {dim}" for dim in dimensions)]
    lines: dict[tuple[str, str, str], dict[int, str]] = {}
    for row in rows:
        text = f"{row['P@5']:.1f}" if "P@5" in row else NOT_RUN
        lines.setdefault((row["dataset"], f"{row['labels']:,}", row["curve"]), {})[row["dim"]] = text
    return result.table(header, [[*names, *(at.get(dim, "") for dim in dimensions)] for names, at in lines.items()])


def draw(rows: list[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["dataset"] for row in rows))
    if not names:
        return None
    figure = Figure(figsize=(4.5 * len(names), 3.8), layout="constrained")
    for place, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), place + 1)
        dimensions = sorted({row["dim"] for row in rows if row["dataset"] == name})
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
        axes.set_xticks(dimensions, [str(dim) for dim in dimensions], fontsize=7, rotation=30)
        axes.xaxis.set_minor_formatter("")
        axes.legend(fontsize=8, title="loss, codebook", title_fontsize=8)
    return figure
