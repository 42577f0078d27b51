"""The paper: the squared error to the vector that holds all labels, present and missing, learns nothing useful.

Beside it the squared error to the sum of the present label vectors alone, solved in closed form: `hb.ModelConfig(knn_weight=0)`.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import holobind as hb
from holobind_paper import cells, result, training
from holobind_paper.training import Job

QUERY, EVERYTHING, PRESENT = "query loss", "regression, all labels", "regression, present labels only"
DATASETS = ("Bibtex", "Delicious")


def run(
    out: Path, seed: int = 0, quick: bool = False, data: Path | None = None, only: Sequence[str] | None = None
) -> dict[str, Any]:
    """Train the same network with either loss; the label-frequency and the random ranking are measured beside."""
    started = time.monotonic()
    sources = training.pick(data, only, quick, DATASETS)
    jobs = []
    for source in sources:
        dim = training.paper_dim(training.load(source).n_labels)
        jobs += [
            Job(source, QUERY, training.hrr_fc(dim)),
            Job(source, EVERYTHING, training.hrr_fc(dim, loss="regression")),
            Job(source, PRESENT, hb.ModelConfig(knn_weight=0)),
        ]
    trained = training.finish(out, jobs, seed, quick, seeds=1)
    rows = training.beside_baselines(trained, sources, (QUERY, EVERYTHING, PRESENT), seed)
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
        title="Regression in place of queries",
        summary="; ".join(
            f"{row['dataset']}: P@1 {row['scores'][EVERYTHING]['P'][0]:.1f} by regression on all labels, "
            f"{row['scores'][QUERY]['P'][0]:.1f} by the query loss; label frequency alone gives "
            f"{row['scores']['label frequency']['P'][0]:.1f}"
            for row in rows
        ),
        notes=[
            "The first two are HRR-FC as in table 1, trained in the same way. The third regresses on the sum of the "
            "present label vectors alone, by a linear network in closed form: what holobind's own set-up starts from.",
        ],
        table=training.table_beside_baselines(rows),
        rows=rows,
    )
