"""Table 5 of the paper: label vectors that are learned, through the projection, beside fixed ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holobind_paper import learned, published

DATASETS = ("Wiki10-31K", "Bibtex", "Delicious")
SIZES = ((512, 100), (512, 400))  # hidden units and d'
WIKI10 = ((512, 400), (2048, 400), (2048, 750), (2048, 1500), (2048, 3000))  # the paper's


def run(
    out: Path, seed: int = 0, quick: bool = False, data: Path | None = None, only: Sequence[str] | None = None
) -> dict[str, Any]:
    """Train every size with fixed and with learned label vectors."""
    paper = {
        (int(row["hidden"]), int(row["dim"])): (float(row["P@5_fixed"]), float(row["P@5_learned"]))
        for row in published.read("table_learned_labels")
    }
    return learned.run(
        out,
        "learned-labels",
        ("labels",),
        DATASETS,
        lambda name: WIKI10 if name == "Wiki10-31K" else SIZES,
        seed=seed,
        quick=quick,
        data=data,
        only=only,
        title="Learned label vectors (table 5)",
        notes=[
            "Learned vectors pass through the projection at each step, as in the paper, and start where the fixed ones "
            "are. The paper's numbers are P@5 on Wiki10-31K, at the same hidden units and d' where it has them.",
        ],
        paper=paper,
    )
