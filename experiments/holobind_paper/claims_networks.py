"""Claims about trained networks."""

from collections.abc import Callable, Sequence
from itertools import product
from statistics import fmean, stdev
from typing import Any

import numpy as np

from holobind_paper import published, thresholds
from holobind_paper.ablation_projection import LOSSES, case_of
from holobind_paper.accuracy import METRICS, SHOWN_K, difference, is_complete
from holobind_paper.authors import FC, FC_TO_THE_END, HRR_FC
from holobind_paper.claims import Claim, Judgement, Results, Verdict, by_share, span
from holobind_paper.compression import network_weights
from holobind_paper.dimension import PLATEAU, plateaus
from holobind_paper.learned_labels import SAME, TENTH

Row = dict[str, Any]


def _complete(results: Results) -> list[Row]:
    """The rows of table 1 that have both heads, with a linear baseline that has learned something."""
    return [row for row in results["accuracy"]["rows"] if is_complete(row)]


def has_learned(row: Row, setup: str) -> bool:
    """Whether a model is clearly better than label frequency."""
    return bool(row["scores"][setup]["P"][0] > row["frequency"]["P"][0] + thresholds.MIN_POINTS_ABOVE_FREQUENCY)


def accuracy(metric: str) -> Callable[[Results], Judgement | None]:
    """Is HRR similar to or better than its baseline, by P@k or PSP@k for all k?"""

    def judge(results: Results) -> Judgement | None:
        rows = _complete(results)
        if not rows:
            return None
        parts, good, total = [], 0, 0
        for k in SHOWN_K:
            found = [difference(row, metric, k) for row in rows]
            similar = sum(value >= -thresholds.MAX_LOSS_OF_SIMILAR for value in found)
            good, total = good + similar, total + len(found)
            parts.append(f"{metric}@{k} {similar} of {len(found)} ({span(found)} points)")
        return Judgement(
            by_share(good, total),
            f"HRR is at most {thresholds.MAX_LOSS_OF_SIMILAR:g} point below its baseline in: {', '.join(parts)}; "
            f"{len(rows)} of {len(results['accuracy']['rows'])} pairs of networks are run",
        )

    return judge


def gain(results: Results) -> Judgement | None:
    """The largest relative gain of HRR over its baseline in P@1; a gain over a weak baseline is named, not counted.

    A baseline is weak if another one on the same dataset has far more.
    """
    rows = _complete(results)
    if not rows:
        return None
    best_baseline: dict[str, float] = {}
    for row in rows:
        best_baseline[row["dataset"]] = max(best_baseline.get(row["dataset"], 0.0), _baseline(row))
    least = {name: thresholds.MIN_SHARE_OF_BEST_BASELINE * value for name, value in best_baseline.items()}
    learned = [row for row in rows if has_learned(row, row["network"])]
    strong = [row for row in learned if _baseline(row) >= least[row["dataset"]]]
    largest = max((_relative(row) for row in strong), default=0.0)
    verdict: Verdict = (
        "confirmed" if largest >= thresholds.RELATIVE_GAIN else "partly" if largest > 0 else "not confirmed"
    )
    figure = f"the largest relative gain in P@1 is {_gains(strong, largest)}"
    weak = [row for row in learned if row not in strong and _relative(row) > largest]
    if weak:
        share = f"{100 * thresholds.MIN_SHARE_OF_BEST_BASELINE:.0f} %"
        figure += f"; not counted, as its baseline has less than {share} of the P@1 of the best one: {_gains(weak)}"
    return Judgement(verdict, figure)


def _gains(rows: list[Row], least: float = -1.0) -> str:
    """Relative gains of at least `least`, with their networks and datasets."""
    found = [
        f"{100 * _relative(row):+.0f} % ({row['network']}, {row['dataset']})" for row in rows if _relative(row) >= least
    ]
    return ", ".join(found) or "none"


def _baseline(row: Row) -> float:
    return float(row["scores"][row["network"]]["P"][0])


def _relative(row: Row) -> float:
    return float(difference(row, "P", 1) / row["scores"][row["network"]]["P"][0])


def authors_gain(results: Results) -> Judgement | None:
    """The +30 % on Bibtex: with the released settings, and with FC trained to its end."""
    row = next((row for row in results["authors"]["rows"] if row["dataset"] == "Bibtex"), None)
    if row is None or any(setup not in row["scores"] for setup in (FC, HRR_FC, FC_TO_THE_END)):
        return None
    p1 = {setup: row["scores"][setup]["P"][0] for setup in (FC, HRR_FC, FC_TO_THE_END)}
    near = all(abs(p1[setup] - row["paper"][setup]["P@1"]) <= thresholds.NEAR_PAPER for setup in (FC, HRR_FC))
    gains = {setup: p1[HRR_FC] / p1[setup] - 1 for setup in (FC, FC_TO_THE_END)}
    with_settings = gains[FC] >= thresholds.RELATIVE_GAIN - 0.02
    at_the_end = gains[FC_TO_THE_END] >= thresholds.RELATIVE_GAIN - 0.02
    verdict: Verdict = "confirmed" if with_settings and at_the_end else "partly" if with_settings else "not confirmed"
    printed = row["paper"]
    return Judgement(
        verdict,
        f"with the released settings HRR-FC {p1[HRR_FC]:.1f}, FC {p1[FC]:.1f} (printed {printed[HRR_FC]['P@1']} and "
        f"{printed[FC]['P@1']}; {'both' if near else 'not both'} within {thresholds.NEAR_PAPER:g} points): "
        f"{100 * gains[FC]:+.0f} %; with the same FC trained to its end, {p1[FC_TO_THE_END]:.1f}: "
        f"{100 * gains[FC_TO_THE_END]:+.0f} %",
    )


def k_matters(results: Results) -> Judgement | None:
    """Correlations of measures over all cells, and whether the better head is the same at every k."""
    rows = results["accuracy"]["rows"]
    scores = [found for row in rows for setup, found in row["scores"].items() if len(found["P"]) >= 5]
    complete = _complete(results)
    if len(scores) < 3 or not complete:
        return None
    correlations = {
        f"{metric}@1 and {metric}@{k}": _correlation(
            [found[metric][0] for found in scores], [found[metric][k - 1] for found in scores]
        )
        for metric, k in product(METRICS, (3, 5))
    }
    same = sum((difference(row, "P", 1) >= 0) == (difference(row, "P", 5) >= 0) for row in complete)
    lost = sum(difference(row, "P", 5) < 0 for row in complete)
    correlated = min(correlations.values()) >= thresholds.CORRELATION
    verdict: Verdict = "confirmed" if correlated and same == len(complete) else "partly" if same else "not confirmed"
    return Judgement(
        verdict,
        f"over {len(scores)} models the correlations are "
        + ", ".join(f"{value:.2f} ({name})" for name, value in correlations.items())
        + f"; the better head is the same at P@1 and P@5 in {same} of {len(complete)} pairs; HRR "
        f"loses at P@5 in {lost}",
    )


def _correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Pearson's correlation; 0 where a measure is the same for all."""
    return float(np.corrcoef(a, b)[0, 1]) if np.std(a) > 0 and np.std(b) > 0 else 0.0


def rare_labels(results: Results) -> Judgement | None:
    """Recall@5 by frequency of labels: worse on the rarest, better on the most frequent."""
    rows = [row for row in _complete(results) if all(row["bands"].get(s) for s in _pair(row))]
    if not rows:
        return None
    by_band: dict[str, list[float]] = {}
    for row in rows:
        linear, holographic = (row["bands"][setup] for setup in _pair(row))
        for band in linear:
            by_band.setdefault(band, []).append(holographic[band]["recall@5"] - linear[band]["recall@5"])
    means = {band: fmean(values) for band, values in by_band.items()}
    rarest, commonest = next(iter(means)), list(means)[-1]
    worse = means[rarest] < -thresholds.BAND_DIFFERENCE
    better = means[commonest] > thresholds.BAND_DIFFERENCE
    return Judgement(
        "confirmed" if worse and better else "partly" if worse or better else "not confirmed",
        f"recall@5 of HRR minus that of its baseline, mean over {len(rows)} pairs, by training rows of a label: "
        + ", ".join(f"{band}: {value:+.1f}" for band, value in means.items()),
    )


def _pair(row: Row) -> tuple[str, str]:
    return row["network"], f"HRR-{row['network']}"


def baselines_learn(results: Results) -> list[str]:
    """The linear baselines of table 1 that are not clearly better than label frequency: there should be none."""
    return [
        f"{row['network']}, {row['dataset']}"
        for row in results["accuracy"]["rows"]
        if row["network"] in row["scores"] and row["frequency"] and not has_learned(row, row["network"])
    ]


# The projection


def _chance(row: Row, setup: str) -> bool:
    frequency = row["scores"]["label frequency"]["P"][0]
    return bool(row["scores"][setup]["P"][0] <= thresholds.CHANCE_RATIO * frequency)


def without_projection(results: Results) -> Judgement | None:
    """Which of the networks without projection guess?"""
    return _without(results, lambda case: True)


def learned_without_projection(results: Results) -> Judgement | None:
    """The same of networks that learn label vectors."""
    return _without(results, lambda case: case["learned"] == "labels learned")


def _without(results: Results, wanted: Callable[[dict[str, str]], bool]) -> Judgement | None:
    rows = [row for row in results["ablation-projection"]["rows"] if "label frequency" in row["scores"]]
    counted: dict[str, list[bool]] = {}
    reached: dict[str, list[float]] = {}
    for row in rows:
        for setup in row["scores"]:
            if ", not projected, " in setup and wanted(case_of(setup)):
                place = _group(case_of(setup))
                counted.setdefault(place, []).append(_chance(row, setup))
                reached.setdefault(place, []).append(row["scores"][setup]["P"][0])
    if not counted:
        return None
    guesses, total = (sum(map(count, counted.values())) for count in (sum, len))
    baselines = ", ".join(f"{row['scores']['label frequency']['P'][0]:.1f} on {row['dataset']}" for row in rows)
    return Judgement(
        by_share(guesses, total),
        f"{guesses} of {total} networks guess (P@1 of at most {thresholds.CHANCE_RATIO:g} times that of "
        f"label frequency, {baselines}): "
        + "; ".join(
            f"{place}: {sum(found)} of {len(found)} (P@1 {span(reached[place], '.1f')})"
            for place, found in counted.items()
        ),
    )


def _group(case: dict[str, str]) -> str:
    """What is learned and by which loss; of learned label vectors also the variance that they start from."""
    start = f", from N(0, {case['scale']})" if case["learned"] == "labels learned" else ""
    return f"{case['learned']}, {case['loss']}{start}"


def same_with_abs(results: Results) -> Judgement | None:
    """The listing's absolute values against the equation, with the projection and fixed vectors."""
    names = {loss: f"fixed, projected, {loss}" for loss in LOSSES}
    rows = [row for row in results["ablation-projection"]["rows"] if all(n in row["scores"] for n in names.values())]
    if not rows:
        return None
    found = {
        f"{row['dataset']} {metric}@{k}": row["scores"][names["listing"]][metric][k - 1]
        - row["scores"][names["equation"]][metric][k - 1]
        for row in rows
        for metric, k in (("P", 1), ("P", 5))
    }
    same = sum(abs(value) <= thresholds.NO_DIFFERENCE for value in found.values())
    return Judgement(
        by_share(same, len(found)),
        "with abs, ranked by |score|, minus without: " + ", ".join(f"{name} {v:+.1f}" for name, v in found.items()),
    )


def regression(results: Results) -> Judgement | None:
    name = "regression, all labels"
    rows = [r for r in results["ablation-regression"]["rows"] if {name, "label frequency"} <= set(r["scores"])]
    if not rows:
        return None
    guesses = sum(_chance(row, name) for row in rows)
    return Judgement(
        by_share(guesses, len(rows)),
        "; ".join(
            f"{row['dataset']}: P@1 {row['scores'][name]['P'][0]:.1f}, by label frequency "
            f"{row['scores']['label frequency']['P'][0]:.1f}"
            for row in rows
        ),
    )


def balance(results: Results) -> Judgement | None:
    rows = [row for row in results["balance"]["rows"] if "1" in row["P@1"] and len(row["P@1"]) > 1]
    if not rows:
        return None
    lost = {row["dataset"]: max(row["P@1"].values()) - row["P@1"]["1"] for row in rows}
    good = sum(value <= thresholds.NO_DIFFERENCE for value in lost.values())
    return Judgement(
        by_share(good, len(lost)),
        "P@1 by the factor of J_n: "
        + "; ".join(
            f"{row['dataset']}: " + ", ".join(f"{value:.1f} ({b})" for b, value in row["P@1"].items()) for row in rows
        ),
    )


# Learned vectors


def _benefit(differences: Sequence[float]) -> bool:
    """Learning has a benefit if it raises P@5 by more than half a point and two standard errors of the difference."""
    error = stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
    return -fmean(differences) > max(thresholds.MIN_BENEFIT, 2 * error)


def learned_labels_same(results: Results) -> Judgement | None:
    """No significant difference between fixed and learned label vectors?"""
    rows = [row for row in results["learned-labels"]["rows"] if row["seeds"]]
    if not rows:
        return None
    parts, good = [], 0
    for way in (TENTH, SAME):
        found = [fmean(row["P@5 differences"]) for row in rows if row["way"] == way]
        same = sum(abs(value) <= thresholds.NO_DIFFERENCE for value in found)
        good += same
        if found:
            parts.append(f"at {way}, P@5 fixed minus learned is {span(found)} ({same} of {len(found)} within a point)")
    return Judgement(by_share(good, len(rows)), "; ".join(parts))


def no_benefit(name: str) -> Callable[[Results], Judgement | None]:
    def judge(results: Results) -> Judgement | None:
        rows = [row for row in results[name]["rows"] if row["seeds"]]
        if not rows:
            return None
        gained = [row for row in rows if _benefit(row["P@5 differences"])]
        shown = ", ".join(f"{row['dataset']} 2 x {row['hidden']}, d' = {row['dim']} ({row['way']})" for row in gained)
        return Judgement(
            by_share(len(rows) - len(gained), len(rows)),
            f"P@5 fixed minus learned is {span([fmean(row['P@5 differences']) for row in rows])}; "
            "learning raises it by more "
            f"than half a point and two standard errors in {len(gained)} of {len(rows)} cases"
            + (f": {shown}" if gained else ""),
        )

    return judge


def keys_by_dim(small: bool) -> Callable[[Results], Judgement | None]:
    """Fixed p and m better for d' up to 400; no difference for larger d'."""

    def judge(results: Results) -> Judgement | None:
        rows = [
            row for row in results["learned-present-missing"]["rows"] if row["seeds"] and (row["dim"] <= 400) == small
        ]
        if not rows:
            return None
        found = [fmean(row["P@5 differences"]) for row in rows]
        if small:
            good = sum(value > thresholds.MIN_BENEFIT for value in found)
        else:
            good = sum(abs(value) <= thresholds.NO_DIFFERENCE for value in found)
        return Judgement(
            by_share(good, len(found)),
            f"P@5 fixed minus learned is {span(found)} in {len(found)} cases with d' "
            + ("up to 400" if small else "above 400")
            + f"; the sentence holds in {good}",
        )

    return judge


# Sizes


def plateau(results: Results) -> Judgement | None:
    starts = plateaus(results["dimension"]["rows"])
    if not starts:
        return None
    early = sum(start <= thresholds.PLATEAU_FRACTION for start in starts.values())
    return Judgement(
        by_share(early, len(starts)),
        f"{PLATEAU:.0%} of the best P@5 is reached at {span([100 * s for s in starts.values()], '.1f')} % of L; at "
        f"{100 * thresholds.PLATEAU_FRACTION:g} % or less on {early} of {len(starts)} curves",
    )


def plateau_holds(results: Results) -> Judgement | None:
    """On the curve that goes up to d' = L: is P@5 after 10 % of L within a few percent of its best?"""
    rows = [row for row in results["dimension"]["rows"] if row["dataset"] == "tibkat-core-en" and "P@5" in row]
    rows = [row for row in rows if row["curve"] == "query, orbit" and row["dim"] >= 0.0995 * row["labels"]]
    if not rows or max(row["dim"] for row in rows) < rows[0]["labels"]:
        return None
    values = {row["dim"]: row["P@5"] for row in rows}
    holds = min(values.values()) >= (1 - thresholds.PLATEAU_HOLDS) * max(values.values())
    return Judgement(
        "confirmed" if holds else "not confirmed",
        "tibkat-core-en, P@5 by d': " + ", ".join(f"{value:.1f} ({dim})" for dim, value in sorted(values.items())),
    )


def _sizes_of(results: Results, kind: str) -> dict[str, dict[tuple[int, int, int], float]]:
    """P@5 of the networks of a kind that are run, by dataset and (layers, hidden units, d')."""
    found: dict[str, dict[tuple[int, int, int], float]] = {}
    for row in results["network-size"]["rows"]:
        if row["network"] == kind and "P@5" in row:
            found.setdefault(row["dataset"], {})[row["layers"], row["hidden"], row["dim"]] = row["P@5"]
    return found


def _gains_over_first(results: Results, kind: str, dim: int) -> dict[str, list[float]]:
    """P@5 of larger networks with the same d' minus that of two hidden layers of 512 units, by dataset."""
    return {
        name: [p5 - sizes[2, 512, dim] for size, p5 in sizes.items() if size[2] == dim and size[:2] != (2, 512)]
        for name, sizes in _sizes_of(results, kind).items()
        if (2, 512, dim) in sizes
    }


def larger_fc(results: Results) -> Judgement | None:
    """Every change of the baseline lowers its accuracy."""
    gains = {name: found for name, found in _gains_over_first(results, "FC", 0).items() if found}
    if not gains:
        return None
    lower = sum(gain < 0 for found in gains.values() for gain in found)
    parts = [f"{name} {span(found)}" for name, found in gains.items()]
    first, *others = [float(row["P@5"]) for row in published.read("table_network_size") if row["network"] == "FC"]
    return Judgement(
        by_share(lower, sum(map(len, gains.values()))),
        f"P@5 of larger FCs minus that of 2 x 512: {'; '.join(parts)} points; "
        f"the paper's own table has {span([p5 - first for p5 in others])}",
    )


def larger_hidden_layers(results: Results) -> Judgement | None:
    """More hidden layers or units change P@5 of HRR-FC by little, d' being the same."""
    dim = 400
    gains = {name: found for name, found in _gains_over_first(results, "HRR-FC", dim).items() if found}
    if not gains:
        return None
    minor = sum(abs(gain) <= thresholds.MINOR_IMPACT for found in gains.values() for gain in found)
    parts = [f"{name} {span(found)}" for name, found in gains.items()]
    return Judgement(
        by_share(minor, sum(map(len, gains.values()))),
        f"P@5 of larger HRR-FCs minus that of 2 x 512, d' = {dim}: {'; '.join(parts)} points",
    )


def larger_outputs(results: Results) -> Judgement | None:
    """With larger hidden layers, P@5 of HRR-FC rises with d'."""
    parts, good, total = [], 0, 0
    for name, sizes in _sizes_of(results, "HRR-FC").items():
        for layers, hidden in dict.fromkeys(size[:2] for size in sizes if size[:2] != (2, 512)):
            by_dim = {size[2]: p5 for size, p5 in sizes.items() if size[:2] == (layers, hidden)}
            if len(by_dim) > 1:
                total += 1
                good += by_dim[max(by_dim)] > by_dim[min(by_dim)] + thresholds.MIN_BENEFIT
                values = ", ".join(f"{by_dim[dim]:.1f} ({dim})" for dim in sorted(by_dim))
                parts.append(f"{name}, {layers} x {hidden}: {values}")
    if not total:
        return None
    return Judgement(by_share(good, total), f"P@5 by d': {'; '.join(parts)}")


def fewer_parameters(results: Results) -> Judgement:
    """By the sizes that the paper prints: all HRR-FCs of table 4 against the first FC, on Wiki10-31K."""
    (data,) = [row for row in published.read("table_datasets") if row["dataset"] == "Wiki10-31K"]
    features, labels = int(data["features"]), int(data["labels"])
    baseline = network_weights(features, labels, 512, 2)
    sizes = [row for row in published.read("table_network_size") if row["network"] == "HRR"]
    counts = [network_weights(features, int(row["out"]), int(row["hidden"]), int(row["layers"])) for row in sizes]
    fewer = sum(count < baseline for count in counts)
    return Judgement(
        by_share(fewer, len(counts)),
        f"{fewer} of {len(counts)} have: {min(counts) / 1e6:.0f} to {max(counts) / 1e6:.0f} million weights, and the "
        f"baseline {baseline / 1e6:.0f} million; the first layer alone has {features:,} x 2048",
    )


def three_layers(results: Results) -> Judgement:
    """Tables 4 and 5 print the same values, for three layers and for two."""
    paper = {
        (row["hidden"], row["out"]): float(row["P@5"])
        for row in published.read("table_network_size")
        if row["network"] == "HRR"
    }
    two = {(row["hidden"], row["dim"]): float(row["P@5_fixed"]) for row in published.read("table_learned_labels")}
    same = sum(two.get(size) == value for size, value in paper.items())
    return Judgement(
        by_share(len(paper) - same, len(paper)),
        f"{same} of its {len(paper)} values are printed in table 5 as well, for networks of two layers",
    )


def not_testable(reason: str) -> Callable[[Results], Judgement]:
    return lambda results: Judgement("not testable here", reason)


LARGE_DATA = "Wiki10-31K, Amazon-13K, Delicious-200K and Amazon-670K are not available here"

CLAIMS = (
    Claim("P@k is similar or improved", "abstract, §5.1", ("accuracy",), accuracy("P")),
    Claim("PSP@k falls by at most a point in most cases", "§5.3", ("accuracy",), accuracy("PSP")),
    Claim("accuracy improves by up to 30 % (relative)", "abstract", ("accuracy",), gain),
    Claim("Bibtex: HRR-FC is 1.3 to 1.4 times FC", "§5.3", ("authors",), authors_gain),
    Claim("results for k from 1 to 5 are alike, and k = 1 suffices", "§5.1", ("accuracy",), k_matters),
    Claim("HRR is worse on rare labels and better on frequent ones", "§5.3", ("accuracy",), rare_labels),
    Claim("without the projection, all networks guess", "§5", ("ablation-projection",), without_projection),
    Claim(
        "label vectors learned without the projection: the network guesses",
        "§5.5",
        ("ablation-projection",),
        learned_without_projection,
    ),
    Claim("absolute values in the loss or not: the same results", "appendix", ("ablation-projection",), same_with_abs),
    Claim("regression on the label vector learns nothing", "§4", ("ablation-regression",), regression),
    Claim("no factor is needed between J_p and J_n", "§4", ("balance",), balance),
    Claim("learned label vectors make no difference", "table 5", ("learned-labels",), learned_labels_same),
    Claim("learning label vectors has no benefit", "§5.5", ("learned-labels",), no_benefit("learned-labels")),
    Claim("fixed p and m are better for d' up to 400", "§5.5", ("learned-present-missing",), keys_by_dim(True)),
    Claim("learned p and m make no difference for larger d'", "§5.5", ("learned-present-missing",), keys_by_dim(False)),
    Claim("P@5 has its plateau at d' of at most 10 % of L", "figure 2", ("dimension",), plateau),
    Claim("the plateau holds for larger d'", "figure 2", ("dimension",), plateau_holds),
    Claim("larger baselines have a lower accuracy", "table 4", ("network-size",), larger_fc),
    Claim("HRR-FC: more layers or hidden units have minor impact", "table 4", ("network-size",), larger_hidden_layers),
    Claim("HRR-FC: larger layers with a larger d' raise P@5", "table 4", ("network-size",), larger_outputs),
    Claim("all these HRR-FCs have fewer parameters than the baseline", "table 4", (), fewer_parameters),
    Claim("these HRR-FCs have three hidden layers", "table 4", (), three_layers),
    Claim("at 670,091 labels HRR-FC falls to 19.9 P@1, FC has 34.6", "table 1", (), not_testable(LARGE_DATA)),
    Claim("within 5 % of XML-CNN's and AttentionXML's published scores", "table 1", (), not_testable(LARGE_DATA)),
)
