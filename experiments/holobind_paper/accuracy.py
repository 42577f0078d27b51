"""Table 1 of the paper: precision with a linear output layer (FC, CNN, LSTM) and with the holographic one (HRR-...).

CNN and LSTM read words: they are trained where a dataset has its texts. Beside FC stands what holobind recommends,
`hb.ModelConfig()` as it comes.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import holobind as hb
from holobind_paper import cells, published, result, training
from holobind_paper.training import Job

OWN = "holobind"
MEASURES = ("P", "PSP")


def run(
    out: Path, seed: int = 0, quick: bool = False, data: Path | None = None, only: Sequence[str] | None = None
) -> dict[str, Any]:
    """Train and measure every dataset there is, beside the paper's numbers."""
    started = time.monotonic()
    paper = {(row["dataset"], row["network"]): row for row in published.read("table_accuracy")}
    jobs: list[Job] = []
    about: list[dict[str, Any]] = []
    for source in training.pick(data, only, quick):
        dataset = training.load(source)
        dim = training.paper_dim(dataset.n_labels)
        pairs = {"FC": (training.fc(), training.hrr_fc(dim))}
        if dataset.texts is not None:
            pairs |= {network: training.text_pair(network, dim) for network in training.TEXT_NETWORKS}
        for network, pair in pairs.items():
            configs = dict(zip(_setups(network), (*pair, hb.ModelConfig()), strict=False))
            jobs += [Job(source, setup, config) for setup, config in configs.items()]
            said = {"labels": dataset.n_labels, "dim": dim, "remark": source.remark(dataset)}
            about.append({"dataset": source.name, "network": network, **said})
    trained = training.finish(out, jobs, seed, quick)
    rows = [_row(said, trained, paper.get((said["dataset"], said["network"]))) for said in about]
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
        notes=_notes(rows, quick),
        table=_table(rows),
        rows=rows,
    )


def _setups(network: str) -> list[str]:
    """What is trained of a network: with a linear output layer, with the holographic one, and, once, what we do."""
    return [network, f"HRR-{network}", *([OWN] if network == "FC" else [])]


def _row(said: dict[str, Any], trained: list[dict[str, Any]], paper: dict[str, str] | None) -> dict[str, Any]:
    row: dict[str, Any] = {**said, "scores": {}, "shown": {}, "parameters": {}, "epochs": {}}
    for setup in _setups(said["network"]):
        found = training.of(trained, said["dataset"], setup)
        row["seeds"] = len(found)
        row["scores"][setup] = {
            measure: [training.mean(found, f"{measure}@{k + 1}") for k in range(len(values))]
            for measure, values in found[0]["scores"].items()
        }
        row["shown"][setup] = {f"{m}@{k}": training.shown(found, f"{m}@{k}") for m in MEASURES for k in (1, 3, 5)}
        row["parameters"][setup] = found[0]["parameters"]
        row["epochs"][setup] = [(one["best_epoch"], one["epochs_run"]) for one in found if "best_epoch" in one]
    if paper:
        columns = zip(_setups(said["network"]), ("baseline", "hrr"), strict=False)
        row["paper"] = {
            setup: {"P@1": float(paper[f"P@1_{column}"]), "PSP@1": float(paper[f"PSP@1_{column}"])}
            for setup, column in columns
        }
    return row


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    header = ["dataset", "labels", "model", "P@1, paper / ours", "difference", "P@3", "P@5"]
    header += ["PSP@1, paper / ours", "difference", "PSP@3", "PSP@5", "seeds"]
    lines = []
    for row in rows:
        for setup in row["scores"]:
            name = f"{setup}, d' = {row['dim']}" if setup.startswith("HRR-") else setup
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


def linear_and_holographic(row: dict[str, Any]) -> tuple[float, float]:
    """P@1 with both output layers."""
    network = row["network"]
    return row["scores"][network]["P"][0], row["scores"][f"HRR-{network}"]["P"][0]


def _summary(rows: list[dict[str, Any]]) -> str:
    text = []
    for network in dict.fromkeys(row["network"] for row in rows):
        mine = [row for row in rows if row["network"] == network]
        better = sum(holographic >= linear for linear, holographic in map(linear_and_holographic, mine))
        text.append(f"HRR-{network} has the P@1 of {network} or more on {better} of {len(mine)} datasets")
    own = [row for row in rows if OWN in row["scores"]]
    best = sum(row["scores"][OWN]["P"][0] >= max(linear_and_holographic(row)) for row in own)
    text.append(f"holobind's own set-up is above both of FC on {best} of {len(own)}")
    apart = [
        abs(row["scores"][setup]["P"][0] - paper["P@1"])
        for row in rows
        for setup, paper in row.get("paper", {}).items()
        if setup.startswith("HRR-")
    ]
    return "; ".join(
        [*text, *([f"the holographic ones are within {max(apart):.1f} of the paper's P@1"] if apart else [])]
    )


def _notes(rows: list[dict[str, Any]], quick: bool) -> list[str]:
    few = {"epochs": training.QUICK_PLAN["epochs"]} if quick else {}
    plan = training.PLAN | few
    notes = [
        "FC: two hidden layers of 512, an output for each label, binary cross-entropy. HRR-FC: the same with d' "
        "outputs, the query loss and a random codebook. "
        f"Both: {plan['epochs']} epochs, batches of {plan['batch_size']}, "
        f"learning rate {plan['learning_rate']}, for every dataset; a tenth of the training rows decides on the epoch. "
        "Rows of features are scaled to length 1. holobind: `hb.ModelConfig()` as it comes. Means over seeds ± standard "
        "deviation; the JSON has nDCG, PSnDCG, recall and coverage at 1 to 5, too.",
    ]
    if any(row["network"] != "FC" for row in rows):
        text = training.TEXT_PLAN | few
        notes.append(
            "CNN and LSTM learn from words alone, without vectors from elsewhere, and are smaller than the paper's: "
            + "; ".join(
                f"{name} {', '.join(f'{what} {n}' for what, n in options.items() if what != 'network')}"
                for name, options in training.TEXT_NETWORKS.items()
            ).replace("_", " ")
            + f", a hidden layer of {text['hidden'][0]}, {text['epochs']} epochs in batches of {text['batch_size']}, "
            f"the first {text['max_tokens']} words of a text."
        )
    remarks = {row["dataset"]: row["remark"] for row in rows if row["remark"]}
    return notes + [f"\\* {name}: {remark}." for name, remark in remarks.items()]
