"""The paper: without the projection, learning falls to chance. Here, beside two rankings that look at no features.

Without the projection, label vectors and p, m are Gaussian. Unbinding is then by the approximate inverse (the
involution, which the projection makes exact) or by the exact one, 1 / F(p) at every frequency. p is fixed, so

    exact unbinding of s from p  =  approximate unbinding of s from q,      F(q) = 1 / conj(F(p))

and the same head computes it with q in place of p.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from holobind import algebra, metrics
from holobind.heads import HolographicHead
from holobind.model import Model
from holobind.networks import FC
from holobind.training import loop as train
from holobind.training.learning import HIDDEN
from holobind_paper import cells, result, training
from holobind_paper.training import Job

PROJECTED, NAIVE, EXACT = "projected", "naive", "naive, exact inverse"
DATASETS = ("Bibtex", "Delicious")


def run(
    out: Path, seed: int = 0, quick: bool = False, data: Path | None = None, only: Sequence[str] | None = None
) -> dict[str, Any]:
    """Train with and without the projection; the label-frequency and the random ranking are measured beside."""
    started = time.monotonic()
    sources = training.pick(data, only, quick, DATASETS)
    jobs = []
    for source in sources:
        dim = training.paper_dim(training.load(source).n_labels)
        naive = training.hrr_fc(dim, codebook="naive")
        jobs += [Job(source, PROJECTED, training.hrr_fc(dim)), Job(source, NAIVE, naive)]
        jobs.append(Job(source, EXACT, naive, with_exact_inverse))
    trained = training.finish(out, jobs, seed, quick, seeds=1)
    rows = training.beside_baselines(trained, sources, (PROJECTED, NAIVE, EXACT), seed)
    worst = {row["dataset"]: min(row["scores"][setup]["P"][0] for setup in (NAIVE, EXACT)) for row in rows}
    return result.save(
        out,
        "ablation-projection",
        None,
        started,
        seed=seed,
        quick=quick,
        trials=max(row["seeds"] for row in rows),
        command=training.command("ablation-projection", seed, quick, data, only),
        seconds=cells.seconds(trained),
        title="Without the projection",
        summary="; ".join(
            f"{row['dataset']}: P@1 {row['scores'][PROJECTED]['P'][0]:.1f} with the projection, "
            f"{worst[row['dataset']]:.1f} at worst without; label frequency alone gives "
            f"{row['scores']['label frequency']['P'][0]:.1f}"
            for row in rows
        ),
        notes=[
            "HRR-FC as in table 1, trained in the same way. Naive: neither label vectors nor p and m are projected; "
            "unbinding is by the approximate inverse, or by the exact one. Baselines look at no features: the most "
            "frequent labels for every point, and labels drawn at random.",
        ],
        table=training.table_beside_baselines(rows),
        rows=rows,
    )


def exact(p: Tensor) -> Tensor:
    """The q from which `algebra.unbind` unbinds as the exact inverse does from p."""
    return algebra.involution(algebra.inverse(p))


def with_exact_inverse(job: Job, out: Path) -> dict[str, Any]:
    """Train with naive vectors and exact unbinding from p and m."""
    dataset, config = training.load(job.source), job.config
    body = FC(dataset.n_features, config.hidden or HIDDEN["fc"], seed=config.seed)
    assert config.dim is not None
    head = HolographicHead(body.out_features, dataset.n_labels, config.dim, "naive", "query", config.seed)
    for key in (head.p, head.m):
        key.copy_(exact(key))
    model = Model(body, head, metrics.frequencies(dataset.train.Y))
    plan = train.TrainConfig(**training.plan_of(config))
    at = train.fit(model, model.examples(dataset.train.X), dataset.train.Y, plan)
    model.metadata = {"training": {"plan": asdict(plan), "history": at.history, "best epoch": at.best_epoch + 1}}
    return training.measured(model.eval(), job.source)
