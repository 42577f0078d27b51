"""Appendix of the paper: learned p and m compared with fixed ones. The figure has P@k, fixed minus learned, by d'.

Learned p and m are projected at each step; in a second way they are also kept orthogonal to each other.
"""

from collections.abc import Sequence
from typing import Any

from holobind.heads import HolographicHead
from holobind_paper import heads, learned
from holobind_paper import jobs as networks
from holobind_paper.datasets import Source
from holobind_paper.jobs import Job
from holobind_paper.learned import FIXED, setup_of
from holobind_paper.training import Found

DATASETS = ("Bibtex", "Delicious", "tibkat-core-en")
FREE, ORTHOGONAL = "p and m", "p and m, kept orthogonal"
DIMENSIONS = (100, 400, 1000)
LARGE_DIMENSIONS = (400, 1000, 3000)  # of datasets with many labels
HIDDEN_UNITS = 512
TITLE = "Learned present and missing vectors (appendix)"


def cases(sources: Sequence[Source], quick: bool) -> list[tuple[Source, int]]:
    found = []
    for source in sources:
        large = source.labels > networks.MAX_LABELS_OF_SMALL_DATASETS
        dimensions = LARGE_DIMENSIONS if large else DIMENSIONS
        found += [(source, dim) for dim in (dimensions[:1] if quick else dimensions)]
    return found


def jobs(sources: Sequence[Source], quick: bool) -> list[Job]:
    wanted = []
    for source, dim in cases(sources, quick):
        large = source.labels > networks.MAX_LABELS_OF_SMALL_DATASETS
        options = networks.hrr_fc(dim, **networks.LARGE_OPTIONS if large else {})
        trainable = options | {"trainable": ("present", "missing")}
        kept = {"keys": "orthogonal"}
        names = {way: setup_of(way, HIDDEN_UNITS, dim) for way in (FIXED, FREE, ORTHOGONAL)}
        wanted.append(Job(source, names[FIXED], options))
        wanted.append(Job(source, names[FREE], trainable, {"keys": "free"}, heads.train_with(free_keys)))
        wanted.append(Job(source, names[ORTHOGONAL], trainable, kept, heads.train_with(orthogonal_keys)))
    return wanted


def free_keys(job: Job, inputs: int, n_labels: int) -> HolographicHead:
    return HolographicHead(inputs, n_labels, **heads.options_of(job))


def orthogonal_keys(job: Job, inputs: int, n_labels: int) -> HolographicHead:
    return heads.OrthogonalKeysHead(inputs, n_labels, **heads.options_of(job))


def build(sources: Sequence[Source], found: Found, quick: bool) -> dict[str, Any]:
    named = [(source.name, HIDDEN_UNITS, dim) for source, dim in cases(sources, quick)]
    rows = learned.rows_of(named, (FREE, ORTHOGONAL), found)
    cosines = {
        way: [abs(cosine) for row in rows if row["way"] == way for cosine in row["cos(p, m)"]]
        for way in (FREE, ORTHOGONAL)
    }
    notes = [
        "Learned p and m pass through the projection at each step and start from the fixed ones. The paper's sentence: "
        "fixed vectors are better for d' up to 400, and there is no difference for larger d'.",
        "Differences are fixed minus learned, means over the same seeds ± standard deviation.",
    ]
    if all(cosines.values()):
        notes.append(
            f"After training |cos(p, m)| is up to {max(cosines[FREE]):.2f}, and up to {max(cosines[ORTHOGONAL]):.4f} "
            "where they are kept orthogonal."
        )
    return {
        "title": TITLE,
        "summary": learned.summary(rows),
        "notes": notes,
        "table": learned.table(rows, False),
        "rows": rows,
        "figure": learned.draw(rows, TITLE),
    }
