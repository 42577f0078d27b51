"""Claims about sizes and times. Times are those of a CPU; the paper's are those of a V100 GPU."""

from typing import Any

from holobind_paper import thresholds
from holobind_paper.claims import Claim, Judgement, Results, Verdict, by_share, span


def _of(results: Results, name: str, dataset: str) -> dict[str, Any]:
    return next(row for row in results[name]["rows"] if row["dataset"] == dataset)


def output_layer(results: Results) -> Judgement:
    row = _of(results, "compression", "Amazon-670K")
    return Judgement(
        _saved(row["output_percent"], row["output_paper"]),
        f"the head saves {row['output_percent']:.2f} % of 512 x {row['labels']:,} weights",
    )


def whole_model(results: Results) -> Judgement:
    row = _of(results, "compression", "Amazon-670K")
    ours, paper = row["network_percent"], row["network_paper"]
    figures = f"the paper's own sizes give {ours:.2f} %"
    return Judgement(_saved(ours, paper), figures + (f"; {paper:.2f} % is printed" if ours != paper else ""))


def _saved(ours: float, paper: float) -> Verdict:
    if abs(ours - paper) <= thresholds.SAME_PERCENT:
        return "confirmed"
    return "partly" if ours > paper else "not confirmed"


def training_time(results: Results) -> Judgement:
    """With the paper's own random codebook, at its datasets' shapes."""
    rows = [row for row in results["speed"]["rows"] if row["labels"] > row["dim"]]
    random = {row["dataset"]: row["speedup"]["HRR-FC, random"] for row in rows}
    orbit = {row["dataset"]: row["speedup"]["HRR-FC"] for row in rows}
    small = [row["speedup"]["HRR-FC"] for row in results["speed"]["rows"] if row["labels"] <= row["dim"]]
    faster = sum(speed >= 1 for speed in random.values())
    enough = random.get("Amazon-670K", 0) >= thresholds.SPEEDUP
    verdict: Verdict = "confirmed" if faster == len(random) and enough else "partly" if faster else "not confirmed"
    return Judgement(
        verdict,
        f"speed-up of {span(list(random.values()), '.2f')} with the paper's random codebook where "
        "there are more labels "
        f"than d' (1 or more on {faster} of {len(random)} shapes), {span(list(orbit.values()), '.2f')} with the orbit"
        + (f"; {span(small, '.2f')} where there are fewer labels" if small else ""),
    )


def cnn_time(results: Results) -> Judgement:
    """The paper: HRR-CNN optimises more slowly on three datasets and faster on Amazon-670K."""
    rows = results["speed-cnn"]["rows"]
    ratios = {row["dataset"]: row["ratio_to_linear"]["query"]["optimisation"] for row in rows}
    paper = {row["dataset"]: row["paper"]["optimisation"] for row in rows}
    same = sum((ratios[name] < 1) == (paper[name] < 1) for name in ratios)
    return Judgement(
        by_share(same, len(rows)),
        "time of HRR-CNN over that of CNN, ours / the paper's: "
        + ", ".join(f"{name} {ratios[name]:.2f} / {paper[name]:.2f}" for name in ratios),
    )


def inference_time(results: Results) -> Judgement:
    """The paper: inference takes as long as with a linear layer. The random codebook against a dense product."""
    rows = results["inference"]["rows"]
    labels = max(row["labels"] for row in rows if row["model"] == "orbit")
    ms = {row["model"]: row["ms"] for row in rows if row["labels"] == labels}
    ratio, orbit = ms["dense"] / ms["random"], ms["dense"] / ms["orbit"]
    same = abs(ratio - 1) <= 0.2
    return Judgement(
        "confirmed" if same else "not confirmed",
        f"at {labels:,} labels, vectors drawn from the seed take {1 / ratio:.1f} times as long as "
        "the dense product, the "
        f"orbit {1 / orbit:.2f} times",
    )


CLAIMS = (
    Claim("the output layer is up to 99.55 % smaller", "table 2", ("compression",), output_layer),
    Claim("the model is up to 42.09 % smaller", "table 2", ("compression",), whole_model),
    Claim("training is up to 6.28 times as fast with many labels", "table 3", ("speed",), training_time),
    Claim("HRR-CNN trains faster only with the most labels", "appendix", ("speed-cnn",), cnn_time),
    Claim(
        "inference takes as long as with a linear layer, vectors drawn from the seed",
        "§5.4",
        ("inference",),
        inference_time,
    ),
)
