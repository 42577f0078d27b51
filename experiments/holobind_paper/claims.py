"""The claims of the paper's abstract, introduction and conclusion, each with a verdict from our results."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Literal

from holobind_paper.accuracy import linear_and_holographic

Results = dict[str, dict[str, Any]]
Verdict = Literal["confirmed", "partly", "not confirmed"]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    experiments   the names of the results that `judge` needs
    judge         returns the verdict and the evidence for it, as text
    """

    text: str
    experiments: tuple[str, ...]
    judge: Callable[[Results], tuple[Verdict, str]]


def rows(results: Results) -> list[list[str]]:
    """One line for each claim: its text, the verdict, the evidence, and the commands that compute it."""
    lines = []
    for claim in CLAIMS:
        if any(name not in results for name in claim.experiments):
            verdict, evidence = "not run", ""
        else:
            verdict, evidence = claim.judge(results)
            if any(results[name]["quick"] for name in claim.experiments):
                evidence += " (quick run)"
        commands = ", ".join(f"`holobind paper {name}`" for name in claim.experiments)
        lines.append([claim.text, verdict, evidence, commands])
    return lines


def _retrieval(results: Results) -> tuple[Verdict, str]:
    first_above = {(row["vsa"], row["d"]): row["first_above"] for row in results["capacity"]["rows"]}
    d = max(d for _, d in first_above)
    over_exact, over_approximate = (
        first_above["HRR w/ Proj", d] / first_above[name, d] for name in ("HRR", "HRR, approximate inverse")
    )
    errors = {(row["vsa"], row["d"], row["n"]): row["mean"] for row in results["retrieval-error"]["rows"]}
    ratios = [
        errors["HRR", at, n] / error for (name, at, n), error in errors.items() if name == "HRR w/ Proj" and error > 0
    ]
    evidence = (
        f"at d = {d} projected vectors have {over_exact:.1f}x the capacity of naive vectors with the exact inverse and "
        f"{over_approximate:.1f}x that with the approximate inverse; the largest ratio of two error rates is "
        f"{max(ratios):.0f}x"
    )
    return "confirmed" if over_exact >= 100 else "partly" if over_exact > 2 else "not confirmed", evidence


def _output(results: Results) -> tuple[Verdict, str]:
    row = _of(results, "compression", "Amazon-670K")
    verdict = _saved(row["output_percent"], row["output_paper"])
    return verdict, f"the head saves {row['output_percent']:.2f} % of 512 x {row['labels']:,} weights"


def _model(results: Results) -> tuple[Verdict, str]:
    row = _of(results, "compression", "Amazon-670K")
    ours, paper = row["network_percent"], row["network_paper"]
    evidence = f"the paper's own sizes give {ours:.2f} %"
    return _saved(ours, paper), evidence + (f"; the paper prints {paper:.2f} %" if ours != paper else "")


def _saved(ours: float, paper: float) -> Verdict:
    return "confirmed" if ours == paper else "partly" if ours > paper else "not confirmed"


def _training(results: Results) -> tuple[Verdict, str]:
    times = {row["dataset"]: row for row in results["speed"]["rows"]}
    large = {name: row["speedup"]["HRR-FC"] for name, row in times.items() if row["labels"] > row["dim"]}
    small = {name: row["speedup"]["HRR-FC"] for name, row in times.items() if row["labels"] <= row["dim"]}
    best = max(large, key=lambda name: large[name])
    with_random = [row["speedup"]["HRR-FC, random"] for row in times.values() if row["labels"] > row["dim"]]
    evidence = (
        f"speed-up of {min(large.values()):.2f}x to {large[best]:.1f}x ({best}) with more labels than d', or "
        f"{min(with_random):.2f}x to {max(with_random):.1f}x with the paper's random codebook"
    )
    if small:
        evidence += f"; {min(small.values()):.2f}x to {max(small.values()):.2f}x with fewer labels than d'"
    enough = large.get("Amazon-670K", 0) > times.get("Amazon-670K", {}).get("paper", 0)
    faster = sum(speed >= 1 for speed in large.values())
    return "confirmed" if faster == len(large) and enough else "partly" if faster else "not confirmed", evidence


MAX_LOSS_OF_SIMILAR = 1.0  # percentage points of P@1
MAX_RATIO_OF_NOTHING_LEARNED = 1.1  # P@1 of a model / P@1 of the label-frequency ranking


def _accuracy(results: Results) -> tuple[Verdict, str]:
    rows = results["accuracy"]["rows"]
    pairs = {f"{row['network']}, {row['dataset']}": linear_and_holographic(row) for row in rows}
    differences = {name: holographic - linear for name, (linear, holographic) in pairs.items()}
    gains = {name: 100 * (holographic / max(linear, 1e-9) - 1) for name, (linear, holographic) in pairs.items()}
    similar = sum(difference >= -MAX_LOSS_OF_SIMILAR for difference in differences.values())
    best = max(gains, key=lambda name: gains[name])
    evidence = (
        f"P@1 of the holographic head is at most {MAX_LOSS_OF_SIMILAR:.0f} point below that of the linear one in "
        f"{similar} of {len(rows)} cases; the differences are {min(differences.values()):+.1f} to "
        f"{max(differences.values()):+.1f} points, the largest relative gain is {gains[best]:+.0f} % ({best})"
    )
    if similar == len(rows) and gains[best] >= 30:
        return "confirmed", evidence
    return "partly" if similar else "not confirmed", evidence


def _projection(results: Results) -> tuple[Verdict, str]:
    return _nothing_learned(results["ablation-projection"]["rows"], ("naive", "naive, exact inverse"))


def _regression(results: Results) -> tuple[Verdict, str]:
    return _nothing_learned(results["ablation-regression"]["rows"], ("regression, all labels",))


def _nothing_learned(rows: list[dict[str, Any]], setups: tuple[str, ...]) -> tuple[Verdict, str]:
    evidence, learned = [], []
    for row in rows:
        baseline = row["scores"]["label frequency"]["P"][0]
        for setup in setups:
            score = row["scores"][setup]["P"][0]
            learned.append(score > MAX_RATIO_OF_NOTHING_LEARNED * baseline)
            evidence.append(f"{row['dataset']}, {setup}: P@1 {score:.1f}, by label frequency {baseline:.1f}")
    verdict: Verdict = "confirmed" if not any(learned) else "not confirmed" if all(learned) else "partly"
    return verdict, "; ".join(evidence)


def _no_benefit(name: str) -> Callable[[Results], tuple[Verdict, str]]:
    """Learning has a benefit if it raises P@5 by more than half a point and two standard errors of the difference."""

    def judge(results: Results) -> tuple[Verdict, str]:
        gained = []
        for row in results[name]["rows"]:
            differences = row["P@5 differences"]
            error = stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
            gained.append(-fmean(differences) > max(0.5, 2 * error))
        verdict: Verdict = "confirmed" if not any(gained) else "not confirmed" if all(gained) else "partly"
        return verdict, results[name]["summary"]

    return judge


def _of(results: Results, name: str, dataset: str) -> dict[str, Any]:
    return next(row for row in results[name]["rows"] if row["dataset"] == dataset)


CLAIMS = (
    Claim("the projection improves retrieval by over 100x", ("capacity", "retrieval-error"), _retrieval),
    Claim("the output layer is up to 99.55 % smaller", ("compression",), _output),
    Claim("the model is up to 42.09 % smaller", ("compression",), _model),
    Claim("training is 41.86 % faster, and an epoch up to 6.28x", ("speed",), _training),
    Claim("accuracy is similar or up to 30 % better", ("accuracy",), _accuracy),
    Claim("without the projection nothing is learned", ("ablation-projection",), _projection),
    Claim("regression on the label vector learns nothing", ("ablation-regression",), _regression),
    Claim("learning the label vectors has no benefit", ("learned-labels",), _no_benefit("learned-labels")),
    Claim("learning p and m has no benefit", ("learned-present-missing",), _no_benefit("learned-present-missing")),
)
