"""The paper's first example at work: two statements in one vector, and questions to it."""

from pathlib import Path

import torch
from rich.bar import Bar
from rich.console import Console
from rich.table import Table

import holobind as hb
from holobind_paper import capacity

D = 512
NAMES = ("red", "blue", "cat", "dog", "cow")


def run(out: Path, seed: int = 0) -> None:
    """Say "a red cat and a blue dog", ask what is red, and draw how much one vector can hold."""
    console = Console()
    symbol = dict(zip(NAMES, hb.unitary(hb.random(len(NAMES), D, torch.Generator().manual_seed(seed))), strict=True))
    S = hb.bundle(hb.bind(symbol["red"], symbol["cat"]), hb.bind(symbol["blue"], symbol["dog"]))
    console.print(f"S = red (x) cat + blue (x) dog, in {D} numbers\n")
    for asked in ("red", "blue", "dog"):
        answer = hb.unbind(S, symbol[asked])
        table = Table("symbol", "similarity", "", title=f"S, what goes with {asked}?", title_justify="left")
        for name in NAMES:
            similarity = float(hb.similarity(answer, symbol[name]))
            table.add_row(name, f"{similarity:+.2f}", Bar(1, 0, max(similarity, 0), width=40))
        console.print(table)
    data = capacity.run(out, seed, quick=True)
    largest = [row for row in data["rows"] if row["d"] == 1024]
    console.print("\nPairs that 1024 numbers hold with at most 3 % of errors among as many distractors:")
    for row in largest:
        console.print(f"  {row['vsa']:<27} {row['holds'] or 'fewer than 8'}")
    console.print(f"\nThe whole curve: {out / 'capacity.png'}")
