"""Table 1 of the paper: precision with a linear head (FC, CNN, LSTM) and with the holographic one (HRR-...).

CNN and LSTM read words and are trained where a dataset has its texts. The table also has holobind's default model,
`hb.ModelConfig()`: ridge regression plus kNN.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holobind_paper import cells, published, result, training
from holobind_paper.training import Job

DEFAULT = "holobind"  # the default model's name in the table
METRICS = ("P", "PSP")


def run(
    out: Path, seed: int = 0, quick: bool = False, data: Path | None = None, only: Sequence[str] | None = None
) -> dict[str, Any]:
    """Train and evaluate on every available dataset, next to the paper's numbers."""
    started = time.monotonic()
    paper = {(row["dataset"], row["network"]): row for row in published.read("table_accuracy")}
    jobs: list[Job] = []
    cases: list[dict[str, Any]] = []
    for source in training.pick(data, only, quick):
        dataset = training.load(source)
        dim = training.paper_dim(dataset.n_labels)
        pairs = {"FC": (training.fc(), training.hrr_fc(dim))}
        if dataset.texts is not None:
            pairs |= {network: training.text_pair(network, dim) for network in training.TEXT_NETWORKS}
        for network, pair in pairs.items():
            options = dict(zip(_setups(network), (*pair, {}), strict=False))
            jobs += [Job(source, setup, changes) for setup, changes in options.items()]
            sizes = {"labels": dataset.n_labels, "dim": dim, "remark": source.remark(dataset)}
            cases.append({"dataset": source.name, "network": network, **sizes})
    trained = training.finish(out, "accuracy", jobs, seed, quick)
    rows = [_row(case, trained, paper.get((case["dataset"], case["network"]))) for case in cases]
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
    """The models of a network: with a linear head, with the holographic one, and, next to FC, the default model."""
    return [network, f"HRR-{network}", *([DEFAULT] if network == "FC" else [])]


def _row(case: dict[str, Any], trained: list[dict[str, Any]], paper: dict[str, str] | None) -> dict[str, Any]:
    row: dict[str, Any] = {**case, "scores": {}, "texts": {}, "parameters": {}, "epochs": {}}
    for setup in _setups(case["network"]):
        found = training.of(trained, case["dataset"], setup)
        row["seeds"] = len(found)
        row["scores"][setup] = training.mean_scores(found)
        row["texts"][setup] = {f"{m}@{k}": training.mean_text(found, f"{m}@{k}") for m in METRICS for k in (1, 3, 5)}
        row["parameters"][setup] = found[0]["parameters"]
        row["epochs"][setup] = [(one["best_epoch"], one["epochs_run"]) for one in found if "best_epoch" in one]
    if paper:
        columns = zip(_setups(case["network"]), ("baseline", "hrr"), strict=False)
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
            for metric in METRICS:
                texts = row["texts"][setup]
                line += [*_paper_and_ours(row, setup, f"{metric}@1"), *(texts[f"{metric}@{k}"] for k in (3, 5))]
            lines.append([*line, row["seeds"]])
    return result.table(header, lines)


def _paper_and_ours(row: dict[str, Any], setup: str, metric: str) -> tuple[str, str]:
    """Both values, and their difference; ours alone where the paper has none."""
    ours, paper = row["texts"][setup][metric], row.get("paper", {}).get(setup)
    if paper is None:
        return ours, ""
    exact = row["scores"][setup][metric.partition("@")[0]][0]
    return f"{paper[metric]:.1f} / {ours}", f"{exact - paper[metric]:+.1f}"


def linear_and_holographic(row: dict[str, Any]) -> tuple[float, float]:
    """P@1 with a linear and with a holographic head."""
    network = row["network"]
    return row["scores"][network]["P"][0], row["scores"][f"HRR-{network}"]["P"][0]


def _summary(rows: list[dict[str, Any]]) -> str:
    text = []
    for network in dict.fromkeys(row["network"] for row in rows):
        mine = [row for row in rows if row["network"] == network]
        better = sum(holographic >= linear for linear, holographic in map(linear_and_holographic, mine))
        text.append(f"HRR-{network} has at least the P@1 of {network} on {better} of {len(mine)} datasets")
    with_default = [row for row in rows if DEFAULT in row["scores"]]
    best = sum(row["scores"][DEFAULT]["P"][0] >= max(linear_and_holographic(row)) for row in with_default)
    text.append(f"holobind's default model has at least the P@1 of FC and HRR-FC on {best} of {len(with_default)}")
    differences = [
        abs(row["scores"][setup]["P"][0] - paper["P@1"])
        for row in rows
        for setup, paper in row.get("paper", {}).items()
        if setup.startswith("HRR-")
    ]
    if differences:
        text.append(f"P@1 of the HRR networks differs from the paper's by at most {max(differences):.1f}")
    return "; ".join(text)


def _notes(rows: list[dict[str, Any]], quick: bool) -> list[str]:
    fewer = {"epochs": training.QUICK_EPOCHS} if quick else {}
    options = training.TRAIN_OPTIONS | fewer
    notes = [
        "FC has two hidden layers of 512, one output for each label and binary cross-entropy. HRR-FC has the same "
        "hidden layers, d' outputs, the query loss and a random codebook. Both are trained for "
        f"{options['epochs']} epochs in batches of {options['batch_size']} with a learning rate of "
        f"{options['learning_rate']} on every dataset; the best epoch is chosen on a held-out tenth of the training "
        "rows. Rows of features are scaled to length 1. holobind is the default model, `hb.ModelConfig()`: ridge "
        "regression plus kNN. Values are means over seeds ± standard deviation. The JSON file also has nDCG, PSnDCG, "
        "recall and coverage at 1 to 5.",
    ]
    if any(row["network"] != "FC" for row in rows):
        text = training.TEXT_OPTIONS | fewer
        sizes = "; ".join(
            f"{name} has {', '.join(f'{option} {value}' for option, value in options.items() if option != 'network')}"
            for name, options in training.TEXT_NETWORKS.items()
        )
        notes.append(
            "CNN and LSTM are trained on words alone, without pretrained word vectors, and are smaller than the "
            f"paper's: {sizes}. Both have a hidden layer of {text['hidden'][0]}, are trained for {text['epochs']} "
            f"epochs in batches of {text['batch_size']} and read the first {text['max_tokens']} words of a text."
        )
    remarks = {row["dataset"]: row["remark"] for row in rows if row["remark"]}
    return notes + [f"\\* {name}: {remark}." for name, remark in remarks.items()]
