"""Table 1 of the paper: precision with a linear head (FC, CNN, LSTM) and with the holographic one (HRR-...).

CNN and LSTM read words and are trained where a dataset has its texts. The table also has holobind's default model,
`hb.ModelConfig()` (ridge regression plus kNN), and the ranking by label frequency, which ignores the features.
"""

from collections.abc import Sequence
from typing import Any

from holobind_paper import jobs as networks
from holobind_paper import published, result, training
from holobind_paper.datasets import Source
from holobind_paper.jobs import Job
from holobind_paper.result import NOT_RUN
from holobind_paper.training import Found

DATASETS = (
    *("Bibtex", "Delicious", "mediamill-reduced", "cooking-stackexchange"),
    *("tibkat-core-en", "python-calls-torch"),
)
DEFAULT = "holobind"  # the default model's name in the table
FREQUENCY = training.BASELINES["frequency"]
METRICS = ("P", "PSP")
SHOWN_K = (1, 3, 5)


def pairs(source: Source) -> dict[str, tuple[networks.Options, networks.Options]]:
    """The options of each network with a linear and with a holographic head."""
    dim, changes = networks.paper_dim(source.labels), networks.OPTIONS_OF_DATASETS.get(source.name, {})
    found = {"FC": (networks.fc(**changes), networks.hrr_fc(dim, **changes))}
    if source.words:
        found |= {network: networks.text_pair(network, source.labels) for network in networks.TEXT_NETWORKS}
    return found


def jobs(sources: Sequence[Source], quick: bool) -> list[Job]:
    wanted = []
    for source in sources:
        wanted.append(training.ranking("frequency", source))
        wanted.append(Job(source, DEFAULT, {}, needs=("bands",)))
        for network, (linear, holographic) in pairs(source).items():
            wanted.append(Job(source, network, linear, needs=("bands",)))
            wanted.append(Job(source, f"HRR-{network}", holographic, needs=("bands",)))
    return wanted


def build(sources: Sequence[Source], found: Found, quick: bool) -> dict[str, Any]:
    paper = {(row["dataset"], row["network"]): row for row in published.read("table_accuracy")}
    rows = [
        _row(source, network, found, paper.get((source.name, network)))
        for source in sources
        for network in pairs(source)
    ]
    return {
        "title": "Accuracy (table 1)",
        "summary": summary(rows),
        "notes": _notes(rows, quick),
        "table": _table(rows),
        "rows": rows,
    }


def setups(network: str) -> list[str]:
    """The models of a network: with a linear and a holographic head, and, next to FC, those without training."""
    return [network, f"HRR-{network}", *([DEFAULT, FREQUENCY] if network == "FC" else [])]


def _row(source: Source, network: str, found: Found, paper: dict[str, str] | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        **{"dataset": source.name, "network": network, "labels": source.labels, "remark": source.note},
        **{"dim": networks.paper_dim(source.labels), "scores": {}, "texts": {}, "seeds": {}, "bands": {}},
    }
    for setup in setups(network):
        cells = found[source.name, setup]
        row["seeds"][setup] = len(cells)
        row["texts"][setup] = {f"{m}@{k}": training.mean_text(cells, f"{m}@{k}") for m in METRICS for k in SHOWN_K}
        if cells:
            row["scores"][setup] = training.mean_scores(cells)
            row["bands"][setup] = training.mean_bands(cells)
    frequency = found[source.name, FREQUENCY]
    row["frequency"] = training.mean_scores(frequency) if frequency else None
    if paper:
        columns = zip(setups(network), ("baseline", "hrr"), strict=False)
        row["paper"] = {
            setup: {"P@1": float(paper[f"P@1_{column}"]), "PSP@1": float(paper[f"PSP@1_{column}"])}
            for setup, column in columns
        }
    return row


def is_complete(row: dict[str, Any]) -> bool:
    """Whether both heads of a network are trained."""
    return row["network"] in row["scores"] and f"HRR-{row['network']}" in row["scores"]


def difference(row: dict[str, Any], metric: str, k: int) -> float:
    """The holographic head's score minus the linear head's."""
    linear, holographic = (row["scores"][setup][metric][:k][-1] for setup in setups(row["network"])[:2])
    return float(holographic - linear)


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    header = ["dataset", "labels", "model", "P@1, paper / ours", "difference", "P@3", "P@5"]
    header += ["PSP@1, paper / ours", "difference", "PSP@3", "PSP@5", "seeds"]
    lines = []
    for row in rows:
        for setup, texts in row["texts"].items():
            name = f"{setup}, d' = {row['dim']}" if setup.startswith("HRR-") else setup
            line = [f"{row['dataset']}{' *' * bool(row['remark'])}", f"{row['labels']:,}", name]
            for metric in METRICS:
                line += [*_paper_and_ours(row, setup, f"{metric}@1"), *(texts[f"{metric}@{k}"] for k in (3, 5))]
            lines.append([*line, row["seeds"][setup]])
    return result.table(header, lines)


def _paper_and_ours(row: dict[str, Any], setup: str, metric: str) -> tuple[str, str]:
    """Both values, and their difference; ours alone where the paper has none."""
    ours, paper = row["texts"][setup][metric], row.get("paper", {}).get(setup)
    if paper is None:
        return ours, ""
    if ours == NOT_RUN:
        return f"{paper[metric]:.1f} / {ours}", ""
    exact = row["scores"][setup][metric.partition("@")[0]][0]
    return f"{paper[metric]:.1f} / {ours}", f"{exact - paper[metric]:+.1f}"


def summary(rows: list[dict[str, Any]]) -> str:
    """In how many places the holographic head is at least as good, for each metric and k."""
    complete = [row for row in rows if is_complete(row)]
    if not complete:
        return NOT_RUN
    text = []
    for network in dict.fromkeys(row["network"] for row in complete):
        mine = [row for row in complete if row["network"] == network]
        better = [f"{sum(difference(row, m, k) >= 0 for row in mine)} ({m}@{k})" for m in METRICS for k in SHOWN_K]
        text.append(f"of {len(mine)} datasets HRR-{network} is at least as good as {network} on {', '.join(better)}")
    return "; ".join(text)


def _notes(rows: list[dict[str, Any]], quick: bool) -> list[str]:
    fewer = {"epochs": networks.QUICK_EPOCHS} if quick else {}
    options = networks.TRAIN_OPTIONS | fewer
    notes = [
        "FC has two hidden layers of 512, one output for each label and binary cross-entropy; its bias starts at the "
        "label frequencies. HRR-FC has the same hidden layers, d' outputs, the query loss and a random codebook. Both "
        f"are trained for {options['epochs']} epochs in batches of {options['batch_size']} with a learning rate of "
        f"{options['learning_rate']} on every dataset; the best epoch is chosen on a held-out tenth of the training "
        "rows. Rows of features are scaled to length 1. holobind is the default model, `hb.ModelConfig()`: ridge "
        "regression plus kNN. Label frequency predicts the most frequent labels for every row. Values are means over "
        "seeds ± standard deviation. The cells (`experiments/results/accuracy.jsonl`) also have nDCG, PSnDCG, recall "
        "and coverage at 1 to 5, and recall by frequency of labels.",
    ]
    if any(row["network"] != "FC" for row in rows):
        text = networks.TEXT_OPTIONS | fewer
        sizes = "; ".join(
            f"{name} has {', '.join(f'{option} {value}' for option, value in options.items() if option != 'network')}"
            for name, options in networks.TEXT_NETWORKS.items()
        )
        notes.append(
            "CNN and LSTM are trained on words alone, without pretrained word vectors, and are smaller than the "
            f"paper's: {sizes}. Both have a hidden layer of {text['hidden'][0]}, are trained for {text['epochs']} "
            f"epochs in batches of {text['batch_size']} with a dropout of {text['dropout']} and "
            f"read the first {text['max_tokens']} words of a text. The options are the same for both heads, but for "
            "Adam's epsilon of LSTM with a linear head on datasets of more than "
            f"{networks.MAX_LABELS_OF_SMALL_DATASETS:,} labels, "
            f"{networks.LINEAR_OPTIONS_OF_MANY_LABELS['LSTM']['adam_epsilon']:g} in place of 1e-8: binary "
            "cross-entropy is a mean over labels, whose gradients are too small for the usual one, and it would learn "
            "nothing. Our "
            "LSTM has one attention query and attends once to each text; the "
            "authors' has one for each label, as AttentionXML has, and averages over them."
        )
    for name, changed in networks.OPTIONS_OF_DATASETS.items():
        if any(row["dataset"] == name for row in rows):
            notes.append(
                f"On {name}, which has few rows and dense features, both heads are trained for {changed['epochs']} "
                "epochs, and rows are not scaled: with the other datasets' options neither is clearly better than "
                "label frequency."
            )
    remarks = {row["dataset"]: row["remark"] for row in rows if row["remark"]}
    return notes + [f"\\* {name}: {remark}." for name, remark in remarks.items()]
