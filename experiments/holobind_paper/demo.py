"""The paper's first example: two statements in one vector, and queries to it."""

from pathlib import Path

import torch
from rich.bar import Bar
from rich.console import Console
from rich.table import Table

import holobind as hb
from holobind_paper import capacity

DIM = 512
NAMES = ("red", "blue", "cat", "dog", "cow")


def run(out: Path, seed: int = 0) -> None:
    """Store "a red cat and a blue dog" in one vector, query it, and draw the capacity of a vector."""
    console = Console()
    symbol = dict(zip(NAMES, hb.unitary(hb.random(len(NAMES), DIM, torch.Generator().manual_seed(seed))), strict=True))
    S = hb.bundle(hb.bind(symbol["red"], symbol["cat"]), hb.bind(symbol["blue"], symbol["dog"]))
    console.print(f"S = red (x) cat + blue (x) dog, a vector of {DIM} dimensions\n")
    for query in ("red", "blue", "dog"):
        unbound = hb.unbind(S, symbol[query])
        table = Table("symbol", "similarity", "", title=f"query: what is bound with {query}?", title_justify="left")
        for name in NAMES:
            similarity = float(hb.similarity(unbound, symbol[name]))
            table.add_row(name, f"{similarity:+.2f}", Bar(1, 0, max(similarity, 0), width=40))
        console.print(table)
    data = capacity.run(out, seed, quick=True)
    largest = [row for row in data["rows"] if row["d"] == 1024]
    console.print("\nPairs that a vector of 1024 dimensions holds with at most 3 % errors among as many distractors:")
    for row in largest:
        console.print(f"  {row['vsa']:<27} {row['capacity'] or 'fewer than 8'}")
    console.print(f"\nThe whole curve: {out / 'capacity.png'}")
