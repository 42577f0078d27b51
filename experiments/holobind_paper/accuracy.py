"""Table 1 of the paper: precision with a linear output layer (FC) and with the holographic one (HRR-FC).

A third column is what holobind recommends, `hb.Recipe()` as it comes.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import holobind as hb
from holobind_paper import cells, published, result, training
from holobind_paper.training import Job

SETUPS = ("FC", "HRR-FC", "holobind")
MEASURES = ("P", "PSP")


def run(
    out: Path, seed: int = 0, quick: bool = False, data: Path | None = None, only: Sequence[str] | None = None
) -> dict[str, Any]:
    """Train and measure every dataset there is, beside the paper's numbers."""
    started = time.monotonic()
    paper = {row["dataset"]: row for row in published.read("table_accuracy") if row["network"] == "FC"}
    jobs, about = [], {}
    for source in training.pick(data, only, quick):
        dataset = training.load(source)
        dim = training.paper_dim(dataset.n_labels)
        recipes = training.fc(), training.hrr_fc(dim), hb.Recipe()
        jobs += [Job(source, setup, recipe) for setup, recipe in zip(SETUPS, recipes, strict=True)]
        about[source.name] = {"labels": dataset.n_labels, "dim": dim, "remark": source.remark(dataset)}
    trained = training.finish(out, jobs, seed, quick)
    rows = [_row(name, said, trained, paper.get(name)) for name, said in about.items()]
    return result.save(
        out,
        "accuracy",
        None,
        started,
        seed=seed,
        quick=quick,
        trials=max(row["seeds"] for row in rows),
        command=training.command("accuracy", seed, quick, data, only),
        seconds=cells.seconds(trained),
        title="Accuracy (table 1)",
        summary=_summary(rows),
        notes=_notes(rows),
        table=_table(rows),
        rows=rows,
    )


def _row(
    name: str, said: dict[str, Any], trained: list[dict[str, Any]], paper: dict[str, str] | None
) -> dict[str, Any]:
    row: dict[str, Any] = {"dataset": name, **said, "scores": {}, "shown": {}, "parameters": {}, "epochs": {}}
    for setup in SETUPS:
        found = training.of(trained, name, setup)
        row["seeds"] = len(found)
        row["scores"][setup] = {
            measure: [training.mean(found, f"{measure}@{k + 1}") for k in range(len(values))]
            for measure, values in found[0]["scores"].items()
        }
        row["shown"][setup] = {f"{m}@{k}": training.shown(found, f"{m}@{k}") for m in MEASURES for k in (1, 3, 5)}
        row["parameters"][setup] = found[0]["parameters"]
        row["epochs"][setup] = [(one["best_epoch"], one["epochs_run"]) for one in found if "best_epoch" in one]
    if paper:
        row["paper"] = {
            setup: {"P@1": float(paper[f"P@1_{column}"]), "PSP@1": float(paper[f"PSP@1_{column}"])}
            for setup, column in (("FC", "baseline"), ("HRR-FC", "hrr"))
        }
    return row


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    header = ["dataset", "labels", "model", "P@1, paper / ours", "difference", "P@3", "P@5"]
    header += ["PSP@1, paper / ours", "difference", "PSP@3", "PSP@5", "seeds"]
    lines = []
    for row in rows:
        for setup in SETUPS:
            name = f"HRR-FC, d' = {row['dim']}" if setup == "HRR-FC" else setup
            line = [f"{row['dataset']}{' *' * bool(row['remark'])}", f"{row['labels']:,}", name]
            for measure in MEASURES:
                line += [*_beside(row, setup, f"{measure}@1"), *(row["shown"][setup][f"{measure}@{k}"] for k in (3, 5))]
            lines.append([*line, row["seeds"]])
    return result.table(header, lines)


def _beside(row: dict[str, Any], setup: str, measure: str) -> tuple[str, str]:
    ours, paper = row["shown"][setup][measure], row.get("paper", {}).get(setup)
    if paper is None:
        return ours, ""
    exact = row["scores"][setup][measure.partition("@")[0]][0]
    return f"{paper[measure]:.1f} / {ours}", f"{exact - paper[measure]:+.1f}"


def gains(rows: list[dict[str, Any]], measure: str = "P") -> dict[str, float]:
    """HRR-FC over FC, by dataset, as a ratio."""
    return {
        row["dataset"]: row["scores"]["HRR-FC"][measure][0] / max(row["scores"]["FC"][measure][0], 1e-9) for row in rows
    }


def _summary(rows: list[dict[str, Any]]) -> str:
    better = sum(gain >= 1 for gain in gains(rows).values())
    best = sum(
        row["scores"]["holobind"]["P"][0] >= max(row["scores"][s]["P"][0] for s in ("FC", "HRR-FC")) for row in rows
    )
    text = f"HRR-FC has the P@1 of FC or more on {better} of {len(rows)} datasets; holobind's own set-up is above both "
    text += f"on {best}"
    apart = [abs(row["scores"]["HRR-FC"]["P"][0] - row["paper"]["HRR-FC"]["P@1"]) for row in rows if "paper" in row]
    return text + (f"; HRR-FC is within {max(apart):.1f} of the paper's P@1" if apart else "")


def _notes(rows: list[dict[str, Any]]) -> list[str]:
    plan = training.PLAN
    notes = [
        "FC: two hidden layers of 512, an output for each label, binary cross-entropy. HRR-FC: the same with d' "
        "outputs, the query loss and a random codebook. "
        f"Both: {plan['epochs']} epochs, batches of {plan['batch_size']}, "
        f"learning rate {plan['learning_rate']}, for every dataset; a tenth of the training rows decides on the epoch. "
        "Rows of features are scaled to length 1. holobind: `hb.Recipe()` as it comes. Means over seeds ± standard "
        "deviation; the JSON has nDCG, PSnDCG, recall and coverage at 1 to 5, too.",
    ]
    return notes + [f"\\* {row['dataset']}: {row['remark']}." for row in rows if row["remark"]]
