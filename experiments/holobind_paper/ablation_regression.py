"""The paper's ablation of the loss: the squared error to the vector that holds all labels, present and missing.

For comparison, the table has the squared error to the sum of the present label vectors alone, solved in closed form:
ridge regression, `hb.ModelConfig(knn_weight=0)`.
"""

from collections.abc import Sequence
from typing import Any

from holobind_paper import jobs as networks
from holobind_paper import training
from holobind_paper.datasets import Source
from holobind_paper.jobs import Job
from holobind_paper.result import NOT_RUN
from holobind_paper.training import Found

QUERY, ALL_LABELS, PRESENT_LABELS = "query loss", "regression, all labels", "regression, present labels only"
DATASETS = ("Bibtex", "Delicious")
RANKINGS = ("frequency", "chance")


def jobs(sources: Sequence[Source], quick: bool) -> list[Job]:
    wanted = []
    for source in sources:
        dim = networks.paper_dim(source.labels)
        wanted += [
            Job(source, QUERY, networks.hrr_fc(dim), seeds=1),
            Job(source, ALL_LABELS, networks.hrr_fc(dim, loss="regression"), seeds=1),
            Job(source, PRESENT_LABELS, {"knn_weight": 0}, seeds=1),
            *(training.ranking(kind, source) for kind in RANKINGS),
        ]
    return wanted


def build(sources: Sequence[Source], found: Found, quick: bool) -> dict[str, Any]:
    names = [QUERY, ALL_LABELS, PRESENT_LABELS, *(training.BASELINES[kind] for kind in RANKINGS)]
    rows = [{"dataset": source.name, **training.means_of_setups(found, source.name, names)} for source in sources]
    text = [
        f"{row['dataset']}: P@1 "
        + ", ".join(f"{row['scores'][name]['P'][0]:.1f} ({name})" for name in names if name in row["scores"])
        for row in rows
        if row["scores"]
    ]
    return {
        "title": "Regression instead of the query loss",
        "summary": "; ".join(text) or NOT_RUN,
        "notes": [
            "The first two models are HRR-FC as in table 1, trained in the same way. The third is ridge regression on "
            "the sum of the present label vectors: holobind's default model without kNN.",
        ],
        "table": training.table_of_setups(rows),
        "rows": rows,
    }
