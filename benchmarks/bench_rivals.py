"""holobind beside the rivals that install from PyPI: accuracy, CPU seconds, rows a second and bytes, in one run.

    .venv/bin/python benchmarks/bench_rivals.py [--out DIR] [--only bibtex ...] [--rivals omikuji-bonsai ...] [--made]

holobind is what `holobind train DATA` makes with no options, as the mean of some seeds: where the data has texts, it
makes features of them, in the time that is measured, and `holobind-features` learns from those of the data as all
others do. With `--made` all learn from the features that holobind makes of the texts. Each contender learns the same
rows in a process of its own (`rivals.py`), is saved, loaded, and asked for the five best labels of every test row.
CPU seconds are user and system time of training, of all threads and children; reading the data, turning it into what a
contender takes, saving, and the compiling that holobind does once on a machine are not in them. Rows a second are from
features to the top five, by the loaded model, asked once before: the fastest of all passes over the test part in four
seconds, and their median beside it in the JSON. Rows have length 1 for all; fastText reads the texts instead. Measures
are computed here, for all alike.

A rival that this Python does not have is installed into an environment of its own under --environments, the first time
(fastText needs a C++ compiler). One that cannot be installed, fails, or takes longer than --limit gets a row that says
so. --out gets rivals.json, rivals.md and rivals.png. The last line printed is JSON.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import venv
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rivals import CONTENDERS
from rivals_plot import scatter
from scipy import sparse
from sklearn.preprocessing import normalize

import holobind as hb
from holobind import metrics

HERE = Path(__file__).resolve().parent
NAMES = ["bibtex", "delicious", "cooking-stackexchange", "tibkat-core-en"]
OURS = ("holobind", "holobind-features")
MEASURES = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
FEW = 1000  # labels, for those that learn each label from all rows
# What pip is asked for, step by step. PECOS would bring torch and transformers for other models than the linear one.
STEPS = {
    "omikuji": [["omikuji", "numpy", "scipy"]],
    "napkinxc": [["napkinxc"]],
    "libpecos": [["numpy<2", "scipy<1.14", "scikit-learn"], ["--no-deps", "libpecos"]],
    "fasttext": [["fasttext", "numpy", "scipy"]],
    "scikit-learn": [["scikit-learn"]],
}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # what linear algebra goes by
MODULES = {"libpecos": "pecos", "scikit-learn": "sklearn"}


class ContenderError(Exception):
    """Why a contender has no figures."""


def tell(*said):
    print(*said, file=sys.stderr, flush=True)


def run(command, limit=None, **variables):
    """What a command printed; a failure's last line is its reason."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, check=False, env=os.environ | variables
        )
    except subprocess.TimeoutExpired as late:
        raise ContenderError(f"stopped after {limit:g} s") from late
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise ContenderError(said[-1][:200] if said and done.returncode > 0 else f"ended with code {done.returncode}")
    return done.stdout


@cache
def install(package, environments):
    """Make an environment with a package; why it cannot be, or None. It is tried once in a run."""
    place = environments / package
    if (place / "ready").exists():
        return None
    tell(f"installing {package} into {place}")
    venv.create(place, with_pip=True, clear=True)
    try:
        for step in STEPS[package]:
            run([place / "bin" / "python", "-m", "pip", "install", "--quiet", *step])
    except ContenderError as failed:
        return f"not installed: {failed}"
    (place / "ready").touch()
    return None


def interpreter(package, environments):
    """A Python that has a package: this one, or that of an environment."""
    if package == "holobind" or find_spec(MODULES.get(package, package)):
        return sys.executable
    if reason := install(package, environments):
        raise ContenderError(reason)
    return environments / package / "bin" / "python"


def made(dataset):
    """A dataset with the features that holobind makes of its texts."""
    tfidf, X = hb.data.Tfidf.fit(dataset.train.texts)
    test = replace(dataset.test, X=tfidf.transform(dataset.test.texts))
    return replace(dataset, train=replace(dataset.train, X=X), test=test)


def prepare(dataset, source, folder):
    """The files that contenders read."""
    (folder / "source.txt").write_text(str(source.resolve()))
    for name, part in dataset.splits.items():
        for what, matrix in (("X", normalize(part.X)), ("Y", part.Y)):
            stored = sparse.csr_matrix(matrix, dtype=np.float32)
            sparse.save_npz(folder / f"{name}.{what}.npz", stored, compressed=False)
        if part.texts is not None:
            (folder / f"{name}.texts.txt").write_text("\n".join(part.texts), encoding="utf-8")


def unfit(name, dataset):
    """Why a contender is not asked to learn a dataset, or None."""
    if name in ("sklearn-ovr", "pecos-ovr", "napkinxc-br") and dataset.n_labels > FEW:
        return f"not run: it learns each label from all rows, and these are {dataset.n_labels} labels (at most {FEW})"
    if name in ("fasttext", "holobind-features") and dataset.texts is None:
        return (
            "not run: it reads texts, and this data has none" if name == "fasttext" else "the same: there are no texts"
        )
    return None


def measure(name, dataset, source, seed, options):
    """One contender, one seed: its figures."""
    python = interpreter(CONTENDERS[name][1], options.environments)
    with tempfile.TemporaryDirectory() as room:
        folder = Path(room)
        prepare(dataset, source, folder)
        command = [python, HERE / "rivals.py", name, folder, str(options.threads), str(seed)]
        try:
            printed = run(command, options.limit, **{name: str(options.threads) for name in THREADS})
            found = json.loads(printed.splitlines()[-1])
        except ContenderError as failed:
            raise ContenderError(str(failed).replace(f"{folder}/", "")) from failed
        top = np.load(folder / f"{name}.npy")
    scored = metrics.evaluate(dataset.test.Y, top, dataset.train.Y, k=top.shape[1], dataset=dataset.name)
    return {key: scored[key] for key in MEASURES} | found


def row_of(name, dataset, source, options):
    """One contender on one dataset: the means over its seeds, or the reason why there are none."""
    row = {"data": dataset.name, "contender": name}
    if reason := unfit(name, dataset):
        return row | {"reason": reason}
    runs = []
    for seed in range(options.seeds if name in OURS else 1):
        try:
            runs.append(measure(name, dataset, source, seed, options))
        except ContenderError as failed:
            return row | {"reason": str(failed)}
    means = {key: np.mean([r[key] for r in runs]) for key in runs[0] if key != "version"}
    rounded = {key: round(float(value), 2 if key in MEASURES else 3) for key, value in means.items()}
    return row | {"version": runs[0]["version"], "seeds": len(runs)} | rounded


COLUMNS = {
    **{name: (name, lambda value: f"{value:.1f}") for name in MEASURES},
    "train cpu s": ("CPU s", lambda value: f"{value:.1f}"),
    "train wall s": ("s", lambda value: f"{value:.1f}"),
    "rows/s": ("rows/s", lambda value: f"{value:,.0f}"),
    "bytes": ("MB", lambda value: f"{value / 1e6:.2f}"),
}


def cells(row):
    return [show(row[key]) for key, (_, show) in COLUMNS.items()]


def table(rows):
    reasons = [f"{row['contender']}: {row['reason']}" for row in rows if "reason" in row]
    titles = (title for title, _ in COLUMNS.values())
    shown = Table("", *titles, title=rows[0]["data"], caption="\n".join(reasons), caption_justify="left")
    for row in rows:
        if "reason" not in row:
            shown.add_row(row["contender"], *cells(row))
    return shown


def markdown(rows, about):
    """A table for each dataset; the best of each column in bold."""
    text = [
        f"{about['threads']} threads; holobind: means of {about['seeds']} seeds. CPU s and s: of training. "
        "rows/s: from features to the top 5, the fastest pass."
    ]
    for data in dict.fromkeys(row["data"] for row in rows):
        here = [row for row in rows if row["data"] == data]
        full = [row for row in here if "reason" not in row]
        best = {}
        for key in COLUMNS if full else ():
            choose = min if key in ("train cpu s", "train wall s", "bytes") else max
            best[key] = choose(row[key] for row in full)
        text += ["", f"## {data}", "", f"| | {' | '.join(title for title, _ in COLUMNS.values())} |"]
        text.append("|---" + "|---:" * len(COLUMNS) + "|")
        for row in full:
            said = [
                f"**{cell}**" if row[key] == best[key] else cell for key, cell in zip(COLUMNS, cells(row), strict=True)
            ]
            text.append(f"| {row['contender']} {row['version']} | {' | '.join(said)} |")
        text += ["", *(f"- {row['contender']}: {row['reason']}" for row in here if "reason" in row)]
    return "\n".join(text).rstrip() + "\n"


def report(rows, about, out):
    out.mkdir(parents=True, exist_ok=True)
    (out / "rivals.json").write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    (out / "rivals.md").write_text(markdown(rows, about))
    full = [row for row in rows if "reason" not in row]
    if full:
        scatter(full, out / "rivals.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rivals = [name for name in CONTENDERS if name not in OURS]
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data", help="folder of datasets")
    parser.add_argument("--only", nargs="+", default=NAMES, metavar="DATASET", help="folders in it")
    parser.add_argument("--rivals", nargs="*", default=rivals, choices=rivals, metavar="NAME", help=", ".join(rivals))
    parser.add_argument("--seeds", type=int, default=3, help="of holobind; 0 leaves it out")
    parser.add_argument("--made", action="store_true", help="rivals, too, learn from features that holobind makes")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit", type=float, default=3600, help="seconds a contender may take")
    parser.add_argument("--environments", type=Path, default=HERE.parent / "build" / "rivals")
    parser.add_argument("--out", type=Path, help="folder for rivals.json, rivals.md and rivals.png")
    options = parser.parse_args()
    for data in options.only:
        if not (options.data / data).is_dir():
            parser.error(f"{options.data} has no folder {data}; name another with --data, or others with --only")
    about = {"threads": options.threads, "seeds": options.seeds, "machine": platform.machine(), "made": options.made}
    rows = []
    for data in options.only:
        source = options.data / data
        dataset = hb.data.load(source)
        if options.made:
            if dataset.texts is None:
                parser.error(f"{data} has no texts to make features of; leave it out with --only, or leave out --made")
            dataset = made(dataset)
        ours = [name for name in OURS[: 1 if options.made else 2] if options.seeds]
        for name in ours + options.rivals:
            tell(f"{data}: {name}")
            rows.append(row_of(name, dataset, source, options))
            if "reason" in rows[-1]:
                tell(f"  {rows[-1]['reason']}")
        Console(width=120).print(table([row for row in rows if row["data"] == dataset.name]))
        if options.out:
            report(rows, about, options.out)
    print(json.dumps({**about, "rows": rows}))


if __name__ == "__main__":
    main()
