"""Appendix of the paper: learned p and m compared with fixed ones. The figure has P@k, fixed minus learned, by d'."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holobind_paper import learned

DATASETS = ("Wiki10-31K", "Bibtex", "Delicious")
DIMENSIONS = (100, 400)
HIDDEN_UNITS = 512


def run(
    out: Path, seed: int = 0, quick: bool = False, data: Path | None = None, only: Sequence[str] | None = None
) -> dict[str, Any]:
    """Train every d' with fixed and with learned p and m."""
    return learned.run(
        out,
        "learned-present-missing",
        ("present", "missing"),
        DATASETS,
        lambda name: tuple((HIDDEN_UNITS, dim) for dim in DIMENSIONS),
        seed=seed,
        quick=quick,
        data=data,
        only=only,
        title="Learned present and missing vectors (appendix)",
        notes=["Learned p and m pass through the projection at each step and start from the fixed ones."],
        with_figure=True,
    )
