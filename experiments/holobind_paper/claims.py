"""The paper's claims, each judged by a function of the results. Thresholds are in `thresholds`.

A claim quotes or paraphrases a sentence of the paper. Its function returns a verdict and the figures behind it; where
cells that it needs are not finished it returns None, and the page says "not run yet".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from holobind_paper.result import NOT_RUN

Results = dict[str, dict[str, Any]]
Verdict = Literal["confirmed", "partly", "not confirmed", "not testable here"]


@dataclass(frozen=True)
class Judgement:
    """A verdict, and the figures that it follows from."""

    verdict: Verdict
    figures: str


Judge = Callable[[Results], Judgement | None]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    where         the section, table or figure it is in
    experiments   the names of the results that `judge` needs; none for a claim that cannot be tested here
    """

    text: str
    where: str
    experiments: tuple[str, ...]
    judge: Judge


def all_claims() -> tuple[Claim, ...]:
    from holobind_paper import claims_networks, claims_symbols, claims_tables

    return (*claims_symbols.CLAIMS, *claims_tables.CLAIMS, *claims_networks.CLAIMS)


def judged(claim: Claim, results: Results) -> Judgement | None:
    """The judgement of a claim; None if a result that it needs is missing or incomplete."""
    if any(name not in results for name in claim.experiments):
        return None
    return claim.judge(results)


def rows(results: Results) -> list[list[str]]:
    """One line for each claim: its text, where it is, the verdict, the figures, and the commands that compute them."""
    lines = []
    for claim in all_claims():
        found = judged(claim, results)
        figures = "" if found is None else found.figures
        if found is not None and any(results[name]["quick"] for name in claim.experiments):
            figures += " (quick run)"
        if found is not None and any(is_incomplete(results[name]) for name in claim.experiments):
            figures += " (some cells are not run yet)"
        commands = ", ".join(f"`holobind paper {command_of(name)}`" for name in claim.experiments)
        lines.append([claim.text, claim.where, NOT_RUN if found is None else found.verdict, figures, commands])
    return lines


def is_incomplete(data: dict[str, Any]) -> bool:
    """Whether a table has cells that are not run yet."""
    return any(NOT_RUN in cell for line in data.get("table", ()) for cell in line)


def command_of(name: str) -> str:
    """The command of an experiment, after `holobind paper`."""
    return "accuracy --preset authors" if name == "authors" else name


def counts(results: Results) -> dict[str, int]:
    """How many claims have each verdict, and how many are not run yet."""
    found = [line[2] for line in rows(results)]
    return {verdict: found.count(verdict) for verdict in dict.fromkeys(found)}


def by_share(good: int, total: int) -> Verdict:
    """Confirmed if all cases agree, partly if some do."""
    return "confirmed" if good == total else "partly" if good else "not confirmed"


def within(value: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= value <= limits[1]


def span(values: Sequence[float], form: str = "+.1f") -> str:
    """The range of some values, as text."""
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"
