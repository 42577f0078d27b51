"""Compare holobind with libraries from PyPI: accuracy, CPU seconds, peak memory, rows a second and model size.

    .venv/bin/python benchmarks/bench_rivals.py [--out DIR] [--only bibtex ...] [--rivals omikuji-bonsai ...] [--tfidf]

`holobind` is what `holobind train DATA` makes without options, as the mean of several seeds. Where the data has texts,
it computes its tf-idf features from them, and training time includes that; `holobind-no-text` learns from the
features of the data, as the other methods do. With `--tfidf` all methods learn from holobind's tf-idf features.

Each method trains on the same rows in a process of its own (`rivals.py`) and is saved; another process loads the model
and predicts the five best labels of every test row. CPU seconds are user and system time of training, over all threads
and child processes; they exclude reading the data, converting it to a library's format, saving, and numba's
compilation (once per machine). Peak memory is that of the training process, with the data it reads. Rows a second
count from features to the top 5 with the loaded model, after a first pass that is not timed: the fastest of all passes
over the test split within four seconds; the JSON has the median pass as well. All methods get rows scaled to length 1,
except fastText, which reads the texts. The metrics of all methods are computed here.

--models keeps data, models and figures in a folder: what is there is not computed again. `--stage train` trains only,
on a machine that may have other work; `--stage predict` predicts with the models that are there, which wants an idle
machine, replaces the figures of an earlier prediction and reports.

A library that this Python does not have is installed at first use into an environment of its own under --environments
(fastText needs a C++ compiler). A method that cannot be installed, fails, or takes longer than --limit gets a row with
the reason. --out is the folder for rivals.json, rivals.md and rivals.png; rows of other datasets and methods in its
rivals.json are kept. `rivals_plot.py` draws the picture again from the JSON. DIR of --data is by default the folder
that HOLOBIND_DATA names. The last line printed is JSON.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from holobind_paper.datasets import data_folder
from rich.console import Console
from rich.table import Table
from rivals import METHODS
from rivals_plot import scatter
from scipy import sparse
from sklearn.preprocessing import normalize

import holobind as hb
from holobind import metrics

HERE = Path(__file__).resolve().parent
DATASETS = [
    "bibtex",
    "delicious",
    "cooking-stackexchange",
    "tibkat-core-en",
    "gutenberg-lcsh",
    "debian-depends",
    "yso-en",
]
OURS = ("holobind", "holobind-no-text")
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
ONE_VS_REST = ("sklearn-ovr", "pecos-ovr", "napkinxc-ovr")
MAX_ONE_VS_REST_LABELS = 1000  # above, one classifier per label takes too long
# Arguments of `pip install`, step by step. PECOS depends on torch and transformers; its linear models need neither.
PIP_STEPS = {
    "omikuji": [["omikuji", "numpy", "scipy"]],
    "napkinxc": [["napkinxc"]],
    "libpecos": [["numpy<2", "scipy<1.14", "scikit-learn"], ["--no-deps", "libpecos"]],
    "fasttext": [["fasttext", "numpy", "scipy"]],
    "scikit-learn": [["scikit-learn"]],
}
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # of linear algebra libraries
MODULES = {"libpecos": "pecos", "scikit-learn": "sklearn"}


class MethodError(Exception):
    """Why a method has no result."""


class NotTrainedError(MethodError):
    """There is no model to predict with."""


def log(text):
    print(text, file=sys.stderr, flush=True)


def run(command, limit=None, **variables):
    """Output of a command; if it fails, the last line of its stderr is the reason."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, check=False, env=os.environ | variables
        )
    except subprocess.TimeoutExpired as late:
        raise MethodError(f"stopped after {limit:g} s") from late
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise MethodError(lines[-1][:200] if lines and done.returncode > 0 else f"ended with code {done.returncode}")
    return done.stdout


@cache
def install(package, environments):
    """Install a package into an environment of its own, once per run; the reason of a failure, or None."""
    folder = environments / package
    if (folder / "ready").exists():
        return None
    log(f"installing {package} into {folder}")
    venv.create(folder, with_pip=True, clear=True)
    try:
        for step in PIP_STEPS[package]:
            run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *step])
    except MethodError as failed:
        return f"not installed: {failed}"
    (folder / "ready").touch()
    return None


def interpreter(package, environments):
    """Path of a Python that has the package: this one, or that of an environment."""
    if package == "holobind" or find_spec(MODULES.get(package, package)):
        return sys.executable
    if reason := install(package, environments):
        raise MethodError(reason)
    return environments / package / "bin" / "python"


def with_tfidf(dataset):
    """The dataset with holobind's tf-idf features of its texts in place of its own features."""
    if dataset.texts is None:
        raise SystemExit(f"{dataset.name} has no texts to compute features from; choose other datasets with --only")
    tfidf, X = hb.data.Tfidf.fit(dataset.train.texts)
    test = replace(dataset.test, X=tfidf.transform(dataset.test.texts))
    return replace(dataset, train=replace(dataset.train, X=X), test=test)


@dataclass(frozen=True)
class Data:
    """A dataset as files that the methods read."""

    name: str
    folder: Path
    has_texts: bool
    n_labels: int

    def labels(self, split):
        return sparse.csr_array(sparse.load_npz(self.folder / f"{split}.Y.npz"))


def prepare(source, folder, tfidf):
    """Write the files that the methods read, unless they are there."""
    about = folder / "data.json"
    if not about.exists():
        folder.mkdir(parents=True, exist_ok=True)
        dataset = hb.data.load(source)
        if tfidf:
            dataset = with_tfidf(dataset)
        (folder / "source.txt").write_text(str(source.resolve()))
        for name, split in dataset.splits.items():
            for what, matrix in (("X", normalize(split.X)), ("Y", split.Y)):
                stored = sparse.csr_matrix(matrix, dtype=np.float32)
                sparse.save_npz(folder / f"{name}.{what}.npz", stored, compressed=False)
            if split.texts is not None:
                (folder / f"{name}.texts.txt").write_text("\n".join(split.texts), encoding="utf-8")
        found = {"name": dataset.name, "has_texts": dataset.texts is not None, "n_labels": dataset.n_labels}
        about.write_text(json.dumps(found))
    return Data(folder=folder, **json.loads(about.read_text()))


def skip_reason(name, data):
    """Why a method is not run on a dataset, or None."""
    if name in ONE_VS_REST and data.n_labels > MAX_ONE_VS_REST_LABELS:
        return (
            f"not run: it trains one classifier per label, and there are {data.n_labels} labels "
            f"(limit {MAX_ONE_VS_REST_LABELS})"
        )
    if not data.has_texts and name == "fasttext":
        return "not run: it reads texts, and this dataset has none"
    if not data.has_texts and name == "holobind-no-text":
        return "the same as holobind: this dataset has no texts"
    return None


def stage(which, name, data, seed, options):
    """Train a method with one seed, or predict with it; what it printed, which is kept beside its model."""
    kept = data.folder / f"{name}-{seed}.{which}.json"
    if which == "train" and kept.exists():
        return json.loads(kept.read_text())
    python = interpreter(METHODS[name][1], options.environments)
    command = [python, HERE / "rivals.py", which, name, data.folder, str(options.threads), str(seed)]
    try:
        printed = run(command, options.limit, **dict.fromkeys(THREAD_VARIABLES, str(options.threads)))
    except MethodError as failed:
        raise MethodError(str(failed).replace(f"{data.folder}/", "")) from failed
    found = json.loads(printed.splitlines()[-1])
    kept.write_text(json.dumps(found))
    return found


def measure(name, data, seed, options):
    """Metrics, times and model size of one method with one seed; without metrics where it is only trained."""
    if options.stage == "predict" and not (data.folder / f"{name}-{seed}.train.json").exists():
        raise NotTrainedError("not trained")
    found = stage("train", name, data, seed, options)
    if options.stage == "train":
        return found
    found |= stage("predict", name, data, seed, options)
    top = np.load(data.folder / f"{name}-{seed}.npy")
    scored = metrics.evaluate(data.labels("test"), top, data.labels("train"), k=top.shape[1], dataset=data.name)
    return {key: scored[key] for key in METRICS} | found


def row_of(name, data, options):
    """One method on one dataset: means over its seeds, or the reason why there are none."""
    row = {"data": data.name, "method": name}
    if reason := skip_reason(name, data):
        return row | {"reason": reason}
    runs = []
    for seed in range(options.seeds if name in OURS else 1):
        try:
            runs.append(measure(name, data, seed, options))
        except NotTrainedError as failed:
            if not runs:
                return row | {"reason": str(failed)}
        except MethodError as failed:
            return row | {"reason": str(failed)}
    means = {key: np.mean([r[key] for r in runs]) for key in runs[0] if key != "version" and runs[0][key] is not None}
    rounded = {key: round(float(value), 2 if key in METRICS else 3) for key, value in means.items()}
    return row | {"version": runs[0]["version"], "seeds": len(runs)} | rounded


# Key of a result: its title in tables and its format.
COLUMNS = {
    **{name: (name, lambda value: f"{value:.1f}") for name in METRICS},
    "train cpu s": ("CPU s", lambda value: f"{value:.1f}"),
    "train wall s": ("s", lambda value: f"{value:.1f}"),
    "peak bytes": ("peak MB", lambda value: f"{value / 1e6:,.0f}"),
    "rows/s": ("rows/s", lambda value: f"{value:,.0f}"),
    "bytes": ("MB", lambda value: f"{value / 1e6:.2f}"),
}


def title(row):
    return METHODS[row["method"]][2]


def cells(row):
    return [show(row[key]) if key in row else "" for key, (_, show) in COLUMNS.items()]


def table(rows):
    reasons = [f"{title(row)}: {row['reason']}" for row in rows if "reason" in row]
    headings = (heading for heading, _ in COLUMNS.values())
    shown = Table("", *headings, title=rows[0]["data"], caption="\n".join(reasons), caption_justify="left")
    for row in rows:
        if "reason" not in row:
            shown.add_row(title(row), *cells(row))
    return shown


def markdown(rows, setup):
    """One table per dataset; the best value of each column is bold."""
    text = [
        f"{setup['threads']} threads; holobind: mean of up to {setup['seeds']} seeds. CPU s, s, peak MB: training. "
        "rows/s: prediction, from features to the top 5, the fastest pass. MB: the saved model."
    ]
    for data in dict.fromkeys(row["data"] for row in rows):
        here = [row for row in rows if row["data"] == data]
        full = [row for row in here if "reason" not in row]
        best = {}
        for key in COLUMNS if full else ():
            choose = min if key in ("train cpu s", "train wall s", "peak bytes", "bytes") else max
            best[key] = choose((row[key] for row in full if key in row), default=None)
        text += ["", f"## {data}", "", f"| | {' | '.join(heading for heading, _ in COLUMNS.values())} |"]
        text.append("|---" + "|---:" * len(COLUMNS) + "|")
        for row in full:
            marked = [
                f"**{cell}**" if cell and row[key] == best[key] else cell
                for key, cell in zip(COLUMNS, cells(row), strict=True)
            ]
            earlier = ", an earlier run" if "earlier" in row else ""
            text.append(f"| {title(row)} {row['version']}{earlier} | {' | '.join(marked)} |")
        text += ["", *(f"- {title(row)}: {row['reason']}" for row in here if "reason" in row)]
    return "\n".join(text).rstrip() + "\n"


def merged(before, rows):
    """The new rows, and rows of datasets and methods that are not measured now, in the order of DATASETS and METHODS.

    A row of another run than the others of its dataset says so.
    """
    now, measured = {(row["data"], row["method"]) for row in rows}, {row["data"] for row in rows}
    kept = [
        row | ({"earlier": True} if row["data"] in measured else {})
        for row in before
        if (row["data"], row["method"]) not in now
    ]
    places = {name: place for place, name in enumerate((*DATASETS, *METHODS))}
    return sorted(kept + rows, key=lambda row: (places.get(row["data"], len(places)), places[row["method"]]))


def report(rows, setup, out):
    """Write rivals.json, rivals.md and rivals.png, with rows of other datasets that rivals.json has."""
    out.mkdir(parents=True, exist_ok=True)
    rows = (
        merged(json.loads((out / "rivals.json").read_text())["rows"], rows) if (out / "rivals.json").exists() else rows
    )
    (out / "rivals.json").write_text(json.dumps({**setup, "rows": rows}, indent=1) + "\n")
    (out / "rivals.md").write_text(markdown(rows, setup))
    full = [row for row in rows if "reason" not in row]
    if full:
        scatter(full, out / "rivals.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rivals = [name for name in METHODS if name not in OURS]
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of datasets (default: HOLOBIND_DATA)")
    parser.add_argument("--only", nargs="+", default=DATASETS, metavar="DATASET", help="folders in it")
    parser.add_argument("--rivals", nargs="*", default=rivals, choices=rivals, metavar="NAME", help=", ".join(rivals))
    parser.add_argument("--ours", nargs="*", default=OURS, choices=OURS, metavar="NAME", help=", ".join(OURS))
    parser.add_argument("--seeds", type=int, default=3, help="seeds of holobind; 0 leaves holobind out")
    parser.add_argument("--tfidf", action="store_true", help="all methods learn from holobind's tf-idf features")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--limit", type=float, default=3600, help="maximum seconds of a method, training and prediction"
    )
    parser.add_argument("--environments", type=Path, default=HERE.parent / "build" / "rivals")
    parser.add_argument("--models", type=Path, help="folder that keeps data and models (default: a temporary one)")
    parser.add_argument(
        "--stage", choices=["both", "train", "predict"], default="both", help="wants --models, unless both"
    )
    parser.add_argument("--out", type=Path, help="folder for rivals.json, rivals.md and rivals.png")
    options = parser.parse_args()
    for data in options.only:
        if not (options.data / data).is_dir():
            parser.error(
                f"{options.data} has no folder {data}; name another folder with --data, or other datasets with --only"
            )
    if options.stage != "both" and not options.models:
        parser.error(f"--stage {options.stage} needs --models, the folder of the models")
    setup = {
        "threads": options.threads,
        "seeds": options.seeds,
        "machine": platform.machine(),
        "tfidf": options.tfidf,
    }
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.only:
            folder = (options.models or Path(temporary)) / (f"{name}-tfidf" if options.tfidf else name)
            data = prepare(options.data / name, folder, options.tfidf)
            rows += rows_of(data, options)
            if options.stage != "train":
                Console(width=132).print(table([row for row in rows if row["data"] == data.name]))
                if options.out:
                    report(rows, setup, options.out)
    print(json.dumps({**setup, "rows": rows}))


def rows_of(data, options):
    """All methods on one dataset."""
    rows = []
    ours = [name for name in options.ours if options.seeds and not (options.tfidf and name == "holobind-no-text")]
    for name in ours + options.rivals:
        log(f"{data.name}: {name}")
        rows.append(row_of(name, data, options))
        if "reason" in rows[-1]:
            log(f"  {rows[-1]['reason']}")
    return rows


if __name__ == "__main__":
    main()
