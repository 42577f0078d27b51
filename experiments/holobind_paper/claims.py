"""The claims of the paper's abstract, introduction and conclusion, each judged by the numbers of the results."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Literal

from holobind_paper.accuracy import linear_and_holographic

Results = dict[str, dict[str, Any]]
Verdict = Literal["confirmed", "partly", "not confirmed"]


@dataclass(frozen=True)
class Claim:
    """What the paper says, the results that can tell, and what they tell."""

    text: str
    needs: tuple[str, ...]
    judge: Callable[[Results], tuple[Verdict, str]]


def rows(found: Results) -> list[list[str]]:
    """A line for each claim: what is claimed, the verdict, the figure, and where it comes from."""
    lines = []
    for claim in CLAIMS:
        missing = [name for name in claim.needs if name not in found]
        if missing:
            verdict, figure = "not run", ""
        else:
            verdict, figure = claim.judge(found)
            if any(found[name]["quick"] for name in claim.needs):
                figure += " (quick run)"
        lines.append([claim.text, verdict, figure, ", ".join(f"`holobind paper {name}`" for name in claim.needs)])
    return lines


def _retrieval(found: Results) -> tuple[Verdict, str]:
    held = {(row["vsa"], row["d"]): row["passes"] for row in found["capacity"]["rows"]}
    d = max(d for _, d in held)
    over_exact, over_approximate = (
        held["HRR w/ Proj", d] / held[name, d] for name in ("HRR", "HRR, approximate inverse")
    )
    errors = {(row["vsa"], row["d"], row["n"]): row["mean"] for row in found["retrieval-error"]["rows"]}
    ratios = [
        errors["HRR", at, n] / error for (name, at, n), error in errors.items() if name == "HRR w/ Proj" and error > 0
    ]
    figure = (
        f"capacity at d = {d}: {over_exact:.1f}x the naive vectors' with the exact inverse, {over_approximate:.1f}x "
        f"with the approximate one; the largest ratio of two error rates is {max(ratios):.0f}x"
    )
    return "confirmed" if over_exact >= 100 else "partly" if over_exact > 2 else "not confirmed", figure


def _output(found: Results) -> tuple[Verdict, str]:
    row = _of(found, "compression", "Amazon-670K")
    return _saved(
        row["output_percent"], row["output_paper"]
    ), f"{row['output_percent']:.2f} % of 512 x {row['labels']:,}"


def _model(found: Results) -> tuple[Verdict, str]:
    row = _of(found, "compression", "Amazon-670K")
    ours, paper = row["network_percent"], row["network_paper"]
    figure = f"{ours:.2f} % by the paper's own sizes"
    return _saved(ours, paper), figure + (f", where it prints {paper:.2f} %" if ours != paper else "")


def _saved(ours: float, paper: float) -> Verdict:
    return "confirmed" if ours == paper else "partly" if ours > paper else "not confirmed"


def _training(found: Results) -> tuple[Verdict, str]:
    times = {row["dataset"]: row for row in found["speed"]["rows"]}
    large = {name: row["speedup"]["HRR-FC"] for name, row in times.items() if row["labels"] > row["dim"]}
    small = {name: row["speedup"]["HRR-FC"] for name, row in times.items() if row["labels"] <= row["dim"]}
    best = max(large, key=lambda name: large[name])
    drawn = [row["speedup"]["HRR-FC, random"] for row in times.values() if row["labels"] > row["dim"]]
    figure = (
        f"{min(large.values()):.2f}x to {large[best]:.1f}x ({best}) where there are more labels than d', "
        f"{min(drawn):.2f}x to {max(drawn):.1f}x with the paper's random codebook"
    )
    if small:
        figure += f"; {min(small.values()):.2f}x to {max(small.values()):.2f}x where there are fewer"
    enough = large.get("Amazon-670K", 0) > times.get("Amazon-670K", {}).get("paper", 0)
    faster = sum(speed >= 1 for speed in large.values())
    return "confirmed" if faster == len(large) and enough else "partly" if faster else "not confirmed", figure


SIMILAR = 1.0  # points of P@1 that count as no difference
CHANCE = 1.1  # times the P@1 of the label-frequency ranking up to which nothing was learned


def _accuracy(found: Results) -> tuple[Verdict, str]:
    rows = found["accuracy"]["rows"]
    pairs = {f"{row['network']}, {row['dataset']}": linear_and_holographic(row) for row in rows}
    apart = {name: holographic - linear for name, (linear, holographic) in pairs.items()}
    gains = {name: 100 * (holographic / max(linear, 1e-9) - 1) for name, (linear, holographic) in pairs.items()}
    good = sum(difference >= -SIMILAR for difference in apart.values())
    most = max(gains, key=lambda name: gains[name])
    figure = (
        f"P@1 with the holographic output as good as with the linear one or better (within {SIMILAR:.0f} point) in "
        f"{good} of {len(rows)} places; from {min(apart.values()):+.1f} to {max(apart.values()):+.1f} points, at most "
        f"{gains[most]:+.0f} % ({most})"
    )
    if good == len(rows) and gains[most] >= 30:
        return "confirmed", figure
    return "partly" if good else "not confirmed", figure


def _projection(found: Results) -> tuple[Verdict, str]:
    return _nothing_learned(found["ablation-projection"]["rows"], ("naive", "naive, exact inverse"))


def _regression(found: Results) -> tuple[Verdict, str]:
    return _nothing_learned(found["ablation-regression"]["rows"], ("regression, all labels",))


def _nothing_learned(rows: list[dict[str, Any]], setups: tuple[str, ...]) -> tuple[Verdict, str]:
    told, learned = [], []
    for row in rows:
        chance = row["scores"]["label frequency"]["P"][0]
        for setup in setups:
            score = row["scores"][setup]["P"][0]
            learned.append(score > CHANCE * chance)
            told.append(f"{row['dataset']}, {setup}: P@1 {score:.1f}, label frequency {chance:.1f}")
    verdict: Verdict = "confirmed" if not any(learned) else "not confirmed" if all(learned) else "partly"
    return verdict, "; ".join(told)


def _no_benefit(name: str) -> Callable[[Results], tuple[Verdict, str]]:
    """Learning is of benefit where P@5 grows by half a point and by two standard errors of the difference."""

    def judge(found: Results) -> tuple[Verdict, str]:
        gained = []
        for row in found[name]["rows"]:
            apart = row["apart"]
            error = stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
            gained.append(-fmean(apart) > max(0.5, 2 * error))
        verdict: Verdict = "confirmed" if not any(gained) else "not confirmed" if all(gained) else "partly"
        return verdict, found[name]["summary"]

    return judge


def _of(found: Results, name: str, dataset: str) -> dict[str, Any]:
    return next(row for row in found[name]["rows"] if row["dataset"] == dataset)


CLAIMS = (
    Claim("the projection improves retrieval by over 100x", ("capacity", "retrieval-error"), _retrieval),
    Claim("the output layer is up to 99.55 % smaller", ("compression",), _output),
    Claim("the model is up to 42.09 % smaller", ("compression",), _model),
    Claim("training is faster, by 41.86 %, an epoch by up to 6.28x", ("speed",), _training),
    Claim("accuracy is similar or better, by up to 30 %", ("accuracy",), _accuracy),
    Claim("without the projection nothing is learned", ("ablation-projection",), _projection),
    Claim("regression on the label vector learns nothing", ("ablation-regression",), _regression),
    Claim("learning the label vectors has no benefit", ("learned-labels",), _no_benefit("learned-labels")),
    Claim("learning p and m has no benefit", ("learned-present-missing",), _no_benefit("learned-present-missing")),
)
