"""The paper's sentence that J_p and J_n need no factor between them: the factor of J_n, from 0 to 10."""

from collections.abc import Sequence
from typing import Any

from holobind.heads import HolographicHead
from holobind_paper import heads, result, training
from holobind_paper import jobs as networks
from holobind_paper.datasets import Source
from holobind_paper.jobs import Job
from holobind_paper.result import NOT_RUN
from holobind_paper.training import Found

DATASETS = ("Bibtex", "Delicious")
BALANCES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)


def setup_of(balance: float) -> str:
    return f"J_p + {balance:g} J_n"


def jobs(sources: Sequence[Source], quick: bool) -> list[Job]:
    return [
        Job(
            source,
            setup_of(balance),
            networks.hrr_fc(networks.paper_dim(source.labels), **networks.SHORT_OPTIONS),
            {"balance": balance},
            heads.train_with(balanced_head),
        )
        for source in sources
        for balance in BALANCES
    ]


def balanced_head(job: Job, inputs: int, n_labels: int) -> HolographicHead:
    head = heads.BalancedHead(inputs, n_labels, **heads.options_of(job))
    head.balance = job.variant["balance"]
    return head


def build(sources: Sequence[Source], found: Found, quick: bool) -> dict[str, Any]:
    rows = []
    for source in sources:
        seeds = {balance: found[source.name, setup_of(balance)] for balance in BALANCES}
        row: dict[str, Any] = {"dataset": source.name}
        for metric in ("P@1", "P@5"):
            row[metric] = {f"{b:g}": training.mean(cells, metric) for b, cells in seeds.items() if cells}
        row["texts"] = {f"{b:g}": training.mean_text(cells, "P@1") for b, cells in seeds.items()}
        row["P@5 texts"] = {f"{b:g}": training.mean_text(cells, "P@5") for b, cells in seeds.items()}
        row["seeds"] = max(len(cells) for cells in seeds.values())
        rows.append(row)
    header = ["dataset", "metric", *(f"J_p + {b:g} J_n" for b in BALANCES), "seeds"]
    lines = [
        [row["dataset"], metric, *row[texts].values(), row["seeds"]]
        for row in rows
        for metric, texts in (("P@1", "texts"), ("P@5", "P@5 texts"))
    ]
    text = [
        f"{row['dataset']}: P@1 {row['P@1']['1']:.1f} with the factor 1, at best {max(row['P@1'].values()):.1f}"
        for row in rows
        if "1" in row["P@1"]
    ]
    return {
        "title": "The balance of J_p and J_n",
        "summary": "; ".join(text) or NOT_RUN,
        "notes": [
            "The network is HRR-FC as in table 1, trained for "
            f"{networks.SHORT_OPTIONS['epochs']} epochs with the loss J_p + b J_n. The paper has b = 1."
        ],
        "table": result.table(header, lines),
        "rows": rows,
    }
