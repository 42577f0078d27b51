"""Claims about retrieval, capacity and the algebra: no network is trained."""

from typing import Any

from holobind_paper import thresholds
from holobind_paper.claims import Claim, Judgement, Results, Verdict, within

EXACT, APPROXIMATE, PROJECTED = "HRR", "HRR, approximate inverse", "HRR w/ Proj"


def interval(found: dict[str, float], digits: int = 2) -> str:
    return f"{found['value']:.{digits}f} ({found['low']:.{digits}f} to {found['high']:.{digits}f})"


def retrieval(results: Results) -> Judgement:
    """Errors without the projection over errors with it, where the lower end of the interval is largest."""
    best = max(results["capacity-growth"]["ratios"], key=lambda row: row["ratio"]["low"])
    first_above = {(row["vsa"], row["d"]): row["first_above"] for row in results["capacity"]["rows"]}
    d = max(d for _, d in first_above)
    over_exact, over_approximate = (first_above[PROJECTED, d] / first_above[name, d] for name in (EXACT, APPROXIMATE))
    ratio = best["ratio"]
    verdict: Verdict = (
        "confirmed"
        if ratio["low"] >= thresholds.RETRIEVAL_IMPROVEMENT and over_approximate >= thresholds.RETRIEVAL_IMPROVEMENT
        else "partly"
        if ratio["low"] >= thresholds.RETRIEVAL_IMPROVEMENT or over_exact > thresholds.PARITY[1]
        else "not confirmed"
    )
    return Judgement(
        verdict,
        f"errors with the exact inverse and no projection over errors with it, at best (d = {best['d']}, n = "
        f"{best['n']}): {best['naive errors']:,} over {best['projected errors']:,} of "
        f"{best['queries']:,} queries, ratio "
        f"{interval(ratio, 0)}; capacity at d = {d}: {over_exact:.1f} times that with the exact inverse, "
        f"{over_approximate:.1f} times that with the approximate one",
    )


def responses(results: Results) -> Judgement:
    """The mean responses of projected vectors at up to 1024 pairs."""
    rows = [row for row in results["response"]["rows"] if row["vsa"] == "projected"]
    errors = [abs(row["present"]["mean"] - 1) for row in rows] + [abs(row["absent"]["mean"]) for row in rows]
    n = max(row["n"] for row in rows)
    good = max(errors) <= thresholds.MAX_RESPONSE_ERROR
    return Judgement(
        "confirmed" if good else "not confirmed",
        f"the means differ from 1 and 0 by at most {max(errors):.2f} for n up to {n}",
    )


def stable_means(results: Results) -> Judgement:
    """Means at n = 2^16 against their standard error, and standard deviations against theory."""
    rows = results["response-spread"]["rows"]
    ratios = [row["std"] / row["theory_std"] for row in rows if row["n"] >= 64]
    paper = [row["paper_std"] / row["theory_std"] for row in rows if row["n"] >= 512]
    off = [abs(row["mean"] - (row["query"] == "present")) for row in rows]
    good = max(off) <= 3 * thresholds.MAX_RESPONSE_ERROR
    theory = all(within(ratio, thresholds.VARIANCE_RATIO) for ratio in ratios)
    return Judgement(
        "confirmed" if good and theory else "partly" if good else "not confirmed",
        f"means differ from 1 and 0 by at most {max(off):.2f} up to n = "
        f"{max(row['n'] for row in rows):,}; the standard "
        f"deviations are {min(ratios):.2f} to {max(ratios):.2f} of the theory's sqrt(n/d), the paper's "
        f"{min(paper):.2f} to {max(paper):.2f}",
    )


def _growth(results: Results, vsa: str) -> dict[str, float]:
    return next(row["exponent"] for row in results["capacity-growth"]["rows"] if row["vsa"] == vsa)


def _is_linear(exponent: dict[str, float]) -> bool:
    return exponent["low"] <= thresholds.LINEAR_EXPONENTS[1] and exponent["high"] >= thresholds.LINEAR_EXPONENTS[0]


def linear_growth(results: Results) -> Judgement:
    exponent = _growth(results, PROJECTED)
    return Judgement(
        "confirmed" if _is_linear(exponent) else "not confirmed", f"capacity grows as d^{interval(exponent)}"
    )


def naive_growth(results: Results) -> Judgement:
    """Naive HRR does not grow linearly: with the exact inverse, and with the approximate one."""
    exact, approximate = _growth(results, EXACT), _growth(results, APPROXIMATE)
    agree = [not _is_linear(exact), not _is_linear(approximate)]
    return Judgement(
        "confirmed" if all(agree) else "partly" if any(agree) else "not confirmed",
        f"as d^{interval(exact)} with the exact inverse, as d^{interval(approximate)} with the approximate one",
    )


def vtb_parity(results: Results) -> Judgement:
    ratio = results["capacity-growth"]["parity"]
    inside = within(ratio["low"], thresholds.PARITY) and within(ratio["high"], thresholds.PARITY)
    verdict: Verdict = (
        "confirmed" if inside else "partly" if within(ratio["value"], thresholds.PARITY) else "not confirmed"
    )
    return Judgement(verdict, f"VTB holds {interval(ratio)} times as many pairs")


def _memory(results: Results) -> dict[str, float]:
    return {row["vsa"]: row["memory"] for row in results["vsa-selection"]["rows"]}


def vtb_memory(results: Results) -> Judgement:
    memory = _memory(results)
    base = memory[PROJECTED]
    generic, blocks = memory["VTB, block matrix written out"] / base, memory["VTB"] / base
    needed = [generic >= thresholds.MEMORY_RATIO, blocks >= thresholds.MEMORY_RATIO]
    return Judgement(
        "confirmed" if all(needed) else "partly" if any(needed) else "not confirmed",
        f"with the block matrix written out {generic:.0f} times the memory of projected HRR, with blocks multiplied "
        f"together {blocks:.1f} times",
    )


def desiderata(results: Results) -> Judgement:
    rows = {row["vsa"]: row for row in results["vsa-selection"]["rows"]}
    row, least = rows[PROJECTED], min(_memory(results).values())
    capacity = results["capacity-growth"]["parity"]["value"]
    met = {
        "real vectors": bool(row["real"]),
        "differentiable": row["gradient share"] == 1,
        "little overhead": row["memory"] / least <= thresholds.SAME_MEMORY and row["bound"] < rows["TPR"]["bound"],
        "capacity of the best": 1 / capacity >= thresholds.PARITY[0],
    }
    good = [name for name, holds in met.items() if holds]
    return Judgement(
        "confirmed" if len(good) == len(met) else "partly" if good else "not confirmed",
        f"projected HRR meets {len(good)} of {len(met)} ({', '.join(good)}); a bound pair has "
        f"{row['bound']:,} numbers, as "
        f"a tensor product {rows['TPR']['bound']:,}",
    )


def tensor_products(results: Results) -> Judgement:
    sizes = results["vsa-selection"]["tensor_products"]
    good = all(tuple(size["measured"]) == (size["d"] ** 2, size["d"] ** 3) for size in sizes)
    shown = ", ".join(f"d = {size['d']}: {size['measured'][0]:,} and {size['measured'][1]:,}" for size in sizes)
    return Judgement("confirmed" if good else "not confirmed", f"two and three bound vectors, {shown}")


def expansions(results: Results) -> Judgement:
    found = results["appendix-algebra"]["expansions"]
    good = min(found.values()) >= thresholds.EXPANSION_DIGITS
    shown = ", ".join(f"{digits:.0f} at {name}" for name, digits in found.items())
    return Judgement("confirmed" if good else "not confirmed", f"digits that agree with the definition: {shown}")


def noise_variances(results: Results) -> Judgement:
    row = max(results["appendix-algebra"]["rows"], key=lambda row: row["d"])
    ratios = {term: row[term] for term in ("xi", "eta")}
    good = all(within(ratio, thresholds.VARIANCE_RATIO) for ratio in ratios.values())
    shown = ", ".join(f"{term} {ratio:.2f}" for term, ratio in ratios.items())
    return Judgement(
        "confirmed" if good else "not confirmed", f"simulated over stated variance at d = {row['d']}: {shown}"
    )


def product_variance(results: Results) -> Judgement:
    rows = results["appendix-algebra"]["rows"]
    stated, squared = ([row[f"product, {formula}"] for row in rows] for formula in ("1/d^4", "1/d^2"))
    good = all(within(ratio, thresholds.VARIANCE_RATIO) for ratio in stated)
    instead = all(within(ratio, thresholds.VARIANCE_RATIO) for ratio in squared)
    return Judgement(
        "confirmed" if good else "not confirmed",
        f"simulated over 1/d^4: {min(stated):,.0f} to {max(stated):,.0f} for d = {rows[0]['d']} to {rows[-1]['d']}"
        + (f"; over 1/d^2: {min(squared):.2f} to {max(squared):.2f}, so it is 1/d^2" if instead else ""),
    )


def partial_key(results: Results) -> Judgement:
    """A query for the eyes without the head's key: is there a weaker response?"""
    rows = {row["key"]: row for row in results["worked-example"]["rows"] if row["answer"] == "eyes"}
    alone, full = rows["e"], rows["h*e"]
    spread = alone["std"] / results["worked-example"]["trials"] ** 0.5
    weaker = 3 * spread < alone["mean"] < full["mean"]
    return Judgement(
        "confirmed" if weaker else "not confirmed",
        f"mean response {alone['mean']:+.3f} ± {spread:.3f} with e alone, {full['mean']:+.2f} with h and e",
    )


def _published(results: Results) -> Any:
    from holobind_paper import published

    return published


def repeated_psp(results: Results) -> Judgement:
    """The paper's PSP@1 of FC on Delicious is Mediamill's: is it ours?"""
    table = {row["dataset"]: row for row in _published(results).read("table_accuracy") if row["network"] == "FC"}
    delicious, mediamill = (float(table[name]["PSP@1_baseline"]) for name in ("Delicious", "Mediamill"))
    rows = [row for row in results["accuracy"]["rows"] if (row["dataset"], row["network"]) == ("Delicious", "FC")]
    ours = [row["scores"]["FC"]["PSP"][0] for row in rows if "FC" in row["scores"]]
    if not ours:
        return Judgement(
            "not confirmed" if delicious == mediamill else "confirmed",
            f"{delicious} is printed for Delicious and {mediamill} for Mediamill; HRR-FC has "
            f"{table['Delicious']['PSP@1_hrr']}",
        )
    near = abs(ours[0] - delicious) <= thresholds.NEAR_PAPER
    return Judgement(
        "confirmed" if near else "not confirmed",
        f"{delicious} is printed for Delicious and {mediamill} for Mediamill; FC has {ours[0]:.1f} here",
    )


def points_per_label(results: Results) -> Judgement:
    """The paper's 2.29 samples for each label of Delicious-200K, from the dataset's published sizes."""
    import holobind as hb

    sizes = hb.data.published("Delicious-200K")
    printed = {row["dataset"]: row for row in _published(results).read("table_datasets")}["Delicious-200K"]
    stated = float(printed["avg_samples_per_label"])
    exact = sizes.train * float(printed["avg_labels_per_point"]) / sizes.labels
    return Judgement(
        "confirmed" if within(stated / exact, thresholds.VARIANCE_RATIO) else "not confirmed",
        f"{sizes.train:,} training rows with {printed['avg_labels_per_point']} of {sizes.labels:,} labels each give "
        f"{exact:.2f}; {stated} is printed",
    )


CLAIMS = (
    Claim(
        "the projection improves retrieval by over 100 times", "abstract", ("capacity", "capacity-growth"), retrieval
    ),
    Claim("with the projection, responses are about 1 and 0 even for 1024 pairs", "figure 1", ("response",), responses),
    Claim("mean responses stay at 1 and 0 up to n = 65,536", "appendix", ("response-spread",), stable_means),
    Claim("with the projection, capacity grows linearly with d", "§3.1", ("capacity-growth",), linear_growth),
    Claim("without it, capacity does not grow linearly", "§3.1", ("capacity-growth",), naive_growth),
    Claim("the projection brings HRR to VTB's capacity", "appendix", ("capacity-growth",), vtb_parity),
    Claim("VTB often needs 10 times the memory", "appendix", ("vsa-selection",), vtb_memory),
    Claim("projected HRR meets the four criteria", "appendix", ("vsa-selection", "capacity-growth"), desiderata),
    Claim("binding n vectors by tensor products takes d^n numbers", "§2", ("vsa-selection",), tensor_products),
    Claim("the expansions at d = 2 and 3", "appendix", ("appendix-algebra",), expansions),
    Claim("xi has variance 2/d, eta (d - 1)/d^2", "appendix", ("appendix-algebra",), noise_variances),
    Claim("a product of two elements has variance 1/d^4", "appendix", ("appendix-algebra",), product_variance),
    Claim("eyes are found without the head's key, by a weaker response", "appendix", ("worked-example",), partial_key),
    Claim("Delicious, FC: PSP@1 is 64.2", "table 1", ("accuracy",), repeated_psp),
    Claim("Delicious-200K has 2.29 points a label", "table 6", (), points_per_label),
)
