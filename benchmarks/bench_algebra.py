"""bind, unbind and unitary beside plain autograd over rfft, torchhd and the `hrr` package, in one run.

    make bench-deps && .venv/bin/python benchmarks/bench_algebra.py [--quick]

Every round runs the libraries in turn, so that a slow moment of the machine falls on all of them alike, and each
round starts with another library. A library's turn is one call that is not timed, because its memory comes cold from
whoever ran before, and the least of three that are. Times are the least of all rounds; ratios are medians over
rounds of (holobind / other) within a round.
The last line printed is JSON.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from rich.console import Console
from rich.table import Table

import holobind as hb

BATCH = 1024
BARS = {
    "plain forward": 1.05,
    "plain forward+backward": 0.75,
    "torchhd forward": 1 / 1.7,
    "hrr forward": 1 / 1.7,
}


def plain_bind(a, b):
    return torch.fft.irfft(torch.fft.rfft(a) * torch.fft.rfft(b), n=a.shape[-1])


def plain_unbind(s, key):
    return torch.fft.irfft(torch.fft.rfft(s) * torch.fft.rfft(key).conj(), n=s.shape[-1])


def plain_unitary(x):
    spectrum = torch.fft.rfft(x)
    return torch.fft.irfft(spectrum / spectrum.abs(), n=x.shape[-1])


def rivals():
    """The same three operations as each library offers them to its users; torchhd has no projection."""
    import HRR.with_pytorch as hrr
    import torchhd

    def as_torchhd(x):
        return x.as_subclass(torchhd.HRRTensor)

    return {
        "bind": {
            "holobind": hb.bind,
            "plain": plain_bind,
            "torchhd": lambda a, b: torchhd.bind(as_torchhd(a), as_torchhd(b)),
            "hrr": lambda a, b: hrr.binding(a, b, dim=-1),
        },
        "unbind": {
            "holobind": hb.unbind,
            "plain": plain_unbind,
            # torchhd's own way to ask: bind with the inverse, which is what its HRR `inverse` computes.
            "torchhd": lambda s, key: torchhd.bind(as_torchhd(s), torchhd.inverse(as_torchhd(key))),
            "hrr": lambda s, key: hrr.unbinding(s, key, dim=-1),
        },
        "unitary": {
            "holobind": hb.unitary,
            "plain": plain_unitary,
            "hrr": lambda x: hrr.projection(x, dim=-1),
        },
    }


def time_round(libraries, vectors, backward):
    """Seconds of one call of each library, one after the other."""
    seconds = {}
    for name, operation in libraries:
        turn = []
        for _ in range(4):
            start = time.perf_counter()
            if backward is None:
                with torch.no_grad():
                    operation(*vectors)
            else:
                torch.autograd.grad(operation(*vectors), vectors, backward)
            turn.append(time.perf_counter() - start)
        seconds[name] = min(turn[1:])
    return seconds


def measure(operation, libraries, d, rounds, with_backward):
    generator = torch.Generator().manual_seed(d)
    count = 1 if operation == "unitary" else 2
    vectors = [hb.random(BATCH, d, generator).requires_grad_(with_backward) for _ in range(count)]
    backward = hb.random(BATCH, d, generator) if with_backward else None
    order = list(libraries.items())
    seconds = []
    for _ in range(rounds):
        order.append(order.pop(0))
        seconds.append(time_round(order, vectors, backward))
    return {
        "operation": operation,
        "d": d,
        "pass": "forward+backward" if with_backward else "forward",
        "milliseconds": {name: 1e3 * min(r[name] for r in seconds) for name in libraries},
        "ratio": {
            name: statistics.median(r["holobind"] / r[name] for r in seconds)
            for name in libraries
            if name != "holobind"
        },
    }


def judged(row):
    """Each bar the issue sets for this row: name, ratio reached, ratio asked, and whether it holds."""
    if row["d"] < 1024:
        return []
    return [
        {"against": name, "ratio": ratio, "bar": BARS[bar], "reached": ratio <= BARS[bar]}
        for name, ratio in row["ratio"].items()
        if (bar := f"{name} {row['pass']}") in BARS
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="4 rounds instead of 24")
    rounds = 4 if parser.parse_args().quick else 24
    libraries = rivals()
    rows = []
    for operation in libraries:
        for with_backward in (False, True):
            for d in (256, 1024, 3000, 4096):
                rows.append(measure(operation, libraries[operation], d, rounds, with_backward))
                rows[-1]["bars"] = judged(rows[-1])
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    table = Table("operation", "pass", "d", "holobind ms", "/ plain", "/ torchhd", "/ hrr", "bars")
    for row in rows:
        ratios = [f"{row['ratio'][n]:.2f}" if n in row["ratio"] else "-" for n in ("plain", "torchhd", "hrr")]
        missed = [f"{b['against']} {b['ratio']:.2f} > {b['bar']:.2f}" for b in row["bars"] if not b["reached"]]
        verdict = "; ".join(missed) or ("reached" if row["bars"] else "none set")
        milliseconds = f"{row['milliseconds']['holobind']:.2f}"
        table.add_row(row["operation"], row["pass"], str(row["d"]), milliseconds, *ratios, verdict)
    Console().print(table)
    bars = [bar for row in rows for bar in row["bars"]]
    summary = {"bars": len(bars), "reached": sum(bar["reached"] for bar in bars)}
    print(json.dumps({"batch": BATCH, "threads": torch.get_num_threads(), "rounds": rounds, **summary, "rows": rows}))


if __name__ == "__main__":
    main()
