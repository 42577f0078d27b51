"""Time of bind, unbind and unitary: holobind, plain autograd over rfft, torchhd and the `hrr` package in one run.

    make bench-deps && .venv/bin/python benchmarks/bench_algebra.py [--quick]

Every round calls the libraries one after the other, so that a slow moment of the machine affects all of them, and each
round starts with another library. A library makes four calls a round: the first is not timed, because the previous
library's data is still in the cache, and the minimum of the other three counts. A reported time is the minimum over
rounds; a reported ratio is the median over rounds of (holobind / other library) within a round.
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
MAX_RATIOS = {  # holobind's time / the other library's time that the benchmark accepts, for d >= MIN_JUDGED_DIM
    "plain forward": 1.05,
    "plain forward+backward": 0.75,
    "torchhd forward": 1 / 1.7,
    "hrr forward": 1 / 1.7,
}
MIN_JUDGED_DIM = 1024


def plain_bind(a, b):
    return torch.fft.irfft(torch.fft.rfft(a) * torch.fft.rfft(b), n=a.shape[-1])


def plain_unbind(s, key):
    return torch.fft.irfft(torch.fft.rfft(s) * torch.fft.rfft(key).conj(), n=s.shape[-1])


def plain_unitary(x):
    spectrum = torch.fft.rfft(x)
    return torch.fft.irfft(spectrum / spectrum.abs(), n=x.shape[-1])


def rivals():
    """The three operations through each library's public functions; torchhd has no projection to unitary vectors."""
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
            # torchhd unbinds by binding with the inverse; for HRR its `inverse` is the involution.
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
    """Seconds of one call of each library, called one after the other."""
    seconds = {}
    for name, operation in libraries:
        calls = []
        for _ in range(4):
            start = time.perf_counter()
            if backward is None:
                with torch.no_grad():
                    operation(*vectors)
            else:
                torch.autograd.grad(operation(*vectors), vectors, backward)
            calls.append(time.perf_counter() - start)
        seconds[name] = min(calls[1:])
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


def targets_of(row):
    """Targets of this row: library, ratio measured, largest ratio accepted, and whether the target is reached."""
    if row["d"] < MIN_JUDGED_DIM:
        return []
    return [
        {"against": name, "ratio": ratio, "max_ratio": MAX_RATIOS[key], "reached": ratio <= MAX_RATIOS[key]}
        for name, ratio in row["ratio"].items()
        if (key := f"{name} {row['pass']}") in MAX_RATIOS
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
                rows[-1]["targets"] = targets_of(rows[-1])
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    table = Table("operation", "pass", "d", "holobind ms", "/ plain", "/ torchhd", "/ hrr", "targets")
    for row in rows:
        ratios = [f"{row['ratio'][n]:.2f}" if n in row["ratio"] else "-" for n in ("plain", "torchhd", "hrr")]
        missed = [f"{t['against']} {t['ratio']:.2f} > {t['max_ratio']:.2f}" for t in row["targets"] if not t["reached"]]
        verdict = "; ".join(missed) or ("reached" if row["targets"] else "none set")
        milliseconds = f"{row['milliseconds']['holobind']:.2f}"
        table.add_row(row["operation"], row["pass"], str(row["d"]), milliseconds, *ratios, verdict)
    Console().print(table)
    targets = [target for row in rows for target in row["targets"]]
    summary = {"targets": len(targets), "reached": sum(target["reached"] for target in targets)}
    print(json.dumps({"batch": BATCH, "threads": torch.get_num_threads(), "rounds": rounds, **summary, "rows": rows}))


if __name__ == "__main__":
    main()
