"""Table 5 of the paper: learned label vectors, which pass through the projection, compared with fixed ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holobind_paper import learned, published

DATASETS = ("Wiki10-31K", "Bibtex", "Delicious")
SIZES = ((512, 100), (512, 400))  # hidden units and d'
WIKI10_SIZES = ((512, 400), (2048, 400), (2048, 750), (2048, 1500), (2048, 3000))  # the paper's


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
        lambda name: WIKI10_SIZES if name == "Wiki10-31K" else SIZES,
        seed=seed,
        quick=quick,
        data=data,
        only=only,
        title="Learned label vectors (table 5)",
        notes=[
            "Learned vectors pass through the projection at each step, as in the paper, and start from the fixed ones. "
            "The paper's numbers are P@5 on Wiki10-31K with the same hidden units and d'; some sizes are not in the "
            "paper.",
        ],
        paper=paper,
    )
