"""Table 5 of the paper: learned label vectors, which pass through the projection, compared with fixed ones.

They are learned at a tenth of the network's learning rate, and at the same rate.
"""

from collections.abc import Sequence
from typing import Any

from holobind_paper import jobs as networks
from holobind_paper import learned, published
from holobind_paper.datasets import Source
from holobind_paper.jobs import Job
from holobind_paper.learned import FIXED, setup_of
from holobind_paper.training import Found

DATASETS = ("Bibtex", "Delicious", "tibkat-core-en", "gutenberg-lcsh", "yso-en")
TENTH, SAME = "a tenth of the learning rate", "the same learning rate"
SMALL_SIZES = ((512, 100), (512, 400))  # hidden units and d'
SIZES = {  # of datasets with many labels
    "tibkat-core-en": ((512, 400), (2048, 400), (2048, 1500)),
    "gutenberg-lcsh": ((512, 400), (2048, 400)),
    "yso-en": ((512, 400),),
    "Wiki10-31K": ((512, 400), (2048, 400), (2048, 750), (2048, 1500), (2048, 3000)),  # the paper's
}
ONE_POINT = ("yso-en",)  # only at a tenth of the rate
EPOCHS = {"yso-en": 2}


def cases(sources: Sequence[Source], quick: bool) -> list[tuple[Source, int, int]]:
    return [
        (source, hidden, dim)
        for source in sources
        for hidden, dim in (SIZES.get(source.name, SMALL_SIZES)[:1] if quick else SIZES.get(source.name, SMALL_SIZES))
    ]


def jobs(sources: Sequence[Source], quick: bool) -> list[Job]:
    wanted = []
    for source, hidden, dim in cases(sources, quick):
        large = source.labels > networks.MAX_LABELS_OF_SMALL_DATASETS
        options = networks.hrr_fc(dim, **networks.LARGE_OPTIONS if large else {})
        if (hidden, hidden) != (512, 512):
            options["hidden"] = (hidden, hidden)
        if source.name in EPOCHS:
            options["epochs"] = EPOCHS[source.name]
        wanted.append(Job(source, setup_of(FIXED, hidden, dim), options))
        for way, factor in ((TENTH, 0.1), (SAME, 1.0)):
            if way == TENTH or source.name not in ONE_POINT:
                changes = {"trainable": ("labels",), "label_learning_rate": factor * options["learning_rate"]}
                wanted.append(Job(source, setup_of(way, hidden, dim), options | changes))
    return wanted


def build(sources: Sequence[Source], found: Found, quick: bool) -> dict[str, Any]:
    paper = {
        (int(row["hidden"]), int(row["dim"])): (float(row["P@5_fixed"]), float(row["P@5_learned"]))
        for row in published.read("table_learned_labels")
    }
    named = [(source.name, hidden, dim) for source, hidden, dim in cases(sources, quick)]
    rows = learned.rows_of(named, (TENTH, SAME), found, paper)
    rows = [row for row in rows if row["way"] == TENTH or row["dataset"] not in ONE_POINT]
    return {
        "title": "Learned label vectors (table 5)",
        "summary": learned.summary(rows),
        "notes": [
            "Learned vectors pass through the projection at each step, as in the paper, and start from the fixed ones. "
            "They have a learning rate of their own (`--label-learning-rate`). The paper's numbers are P@5 on "
            "Wiki10-31K with the same hidden units and d'; compare the differences. Datasets with many labels are "
            f"trained for {networks.LARGE_OPTIONS['epochs']} epochs in batches of "
            f"{networks.LARGE_OPTIONS['batch_size']}, yso-en for {EPOCHS['yso-en']}.",
            "Differences are fixed minus learned, means over the same seeds ± standard deviation.",
        ],
        "table": learned.table(rows, True),
        "rows": rows,
    }
