"""The paper's ablation of the loss: the squared error to the vector that holds all labels, present and missing.

For comparison, the table has the squared error to the sum of the present label vectors alone, solved in closed form:
ridge regression, `hb.ModelConfig(knn_weight=0)`.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holobind_paper import cells, result, training
from holobind_paper.training import Job

QUERY, ALL_LABELS, PRESENT_LABELS = "query loss", "regression, all labels", "regression, present labels only"
DATASETS = ("Bibtex", "Delicious")


def run(
    out: Path, seed: int = 0, quick: bool = False, data: Path | None = None, only: Sequence[str] | None = None
) -> dict[str, Any]:
    """Train the same network with both losses, and evaluate the label-frequency and the random ranking."""
    started = time.monotonic()
    sources = training.pick(data, only, quick, DATASETS)
    jobs = []
    for source in sources:
        dim = training.paper_dim(training.load(source).n_labels)
        jobs += [
            Job(source, QUERY, training.hrr_fc(dim)),
            Job(source, ALL_LABELS, training.hrr_fc(dim, loss="regression")),
            Job(source, PRESENT_LABELS, {"knn_weight": 0}),
        ]
    trained = training.finish(out, "ablation-regression", jobs, seed, quick, seeds=1)
    rows = training.with_baselines(trained, sources, (QUERY, ALL_LABELS, PRESENT_LABELS), seed)
    return result.save(
        out,
        "ablation-regression",
        None,
        started,
        seed=seed,
        quick=quick,
        trials=max(row["seeds"] for row in rows),
        command=training.command("ablation-regression", seed, quick, data, only),
        seconds=cells.seconds(trained),
        title="Regression instead of the query loss",
        summary="; ".join(
            f"{row['dataset']}: P@1 {row['scores'][ALL_LABELS]['P'][0]:.1f} by regression on all labels, "
            f"{row['scores'][QUERY]['P'][0]:.1f} by the query loss, "
            f"{row['scores']['label frequency']['P'][0]:.1f} by label frequency"
            for row in rows
        ),
        notes=[
            "The first two models are HRR-FC as in table 1, trained in the same way. The third is ridge regression on "
            "the sum of the present label vectors: holobind's default model without kNN.",
        ],
        table=training.table_with_baselines(rows),
        rows=rows,
    )
