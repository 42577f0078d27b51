"""The methods that `bench_rivals.py` compares: train one of them, or predict with it, in a process of its own.

    python benchmarks/rivals.py train|predict NAME FOLDER THREADS SEED

FOLDER holds what `bench_rivals.py` writes there: train.X.npz, train.Y.npz and test.X.npz (float32, rows of X scaled to
length 1), texts where the data has them, and source.txt, which names the folder of the dataset. `train` writes the
model to FOLDER/NAME-SEED. `predict` loads it and writes the five best labels of each test row to FOLDER/NAME-SEED.npy,
filled with -1 where there are fewer than five. The last line printed is JSON.

This file runs in the environment of each library: it needs numpy, scipy and the library that NAME names.

An entry of METHODS is a function that takes a `Task` and returns three functions. `prepare()` converts the data to the
form that a library reads and returns a function without arguments that trains, which alone is timed. `save(model,
path)` writes the model. `load(path)` returns a function without arguments that predicts the top 5 of all test rows,
timed as well; conversion of the rows happens in `load`.
"""

import json
import re
import resource
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import numpy as np
from scipy import sparse

K = 5
MIN_PREDICTION_SECONDS = 4.0  # passes over the test split are repeated for this long; the fastest counts


@dataclass(frozen=True)
class Task:
    """What a library learns and predicts, as matrices and texts."""

    folder: Path
    threads: int
    seed: int

    @cached_property
    def X(self):  # noqa: N802
        return sparse.csr_matrix(sparse.load_npz(self.folder / "train.X.npz"))

    @cached_property
    def Y(self):  # noqa: N802
        return sparse.csr_matrix(sparse.load_npz(self.folder / "train.Y.npz"))

    @cached_property
    def X_test(self):  # noqa: N802
        return sparse.csr_matrix(sparse.load_npz(self.folder / "test.X.npz"))

    def texts(self, split):
        return (self.folder / f"{split}.texts.txt").read_text(encoding="utf-8").split("\n")


def holobind(task, text=None):
    """The model that `holobind train DATA` makes without options: from texts, where the data has them."""
    import torch

    import holobind as hb
    from holobind.warm import warm

    torch.set_num_threads(task.threads)
    data = hb.data.load((task.folder / "source.txt").read_text())

    def prepare():
        # numba compiles at the first call, once per machine: here, on few rows, and on few features (for a forest).
        warm()
        few = hb.data.Split(data.train.X[:50], data.train.Y[:50], data.train.texts and data.train.texts[:50])
        for split in (few, hb.data.Split(data.train.X[:1200, :100], data.train.Y[:1200])):
            small = hb.learn(split, hb.ModelConfig(text=text))
            small.top_k(small.inputs_of(split), min(K, data.n_labels))
        config = hb.ModelConfig(seed=task.seed, text=text)
        about = {"label_names": data.label_names, "tfidf": data.tfidf, "metadata": {"data": data.name}}
        return lambda: hb.learn(data.train, config, **about)

    def load(path):
        model = hb.load(path)
        X = data.test.X if model.tfidf is None else model.tfidf.transform(data.test.texts)
        return lambda: model.top_k(X, min(K, data.n_labels))[1]

    return prepare, lambda model, path: model.save(path), load


def holobind_no_text(task):
    """The model that `holobind train DATA --no-text` makes: from the features that the other libraries read."""
    return holobind(task, text=False)


def omikuji(task, **settings):
    import omikuji

    def prepare():
        lib, ffi = omikuji.lib, omikuji.ffi
        path = task.folder / "omikuji.txt"
        if not path.exists():
            write_points(path, task.X, task.Y)
        # The two steps of `Model.train_on_data`, so that reading the file is not timed.
        pool = omikuji._ThreadPoolHandle(task.threads, initialize=True)
        data = lib.load_omikuji_data_set(ffi.new("char[]", str(path).encode()), pool.ptr)
        if data == ffi.NULL:
            raise RuntimeError(f"omikuji cannot read {path.name}")
        options = omikuji.Model.default_hyper_param()
        for name, value in settings.items():
            setattr(options, name, value)
        return lambda: omikuji.Model(lib.train_omikuji_model(data, options, pool.ptr))

    def load(path):
        model = omikuji.Model.load(str(path))
        model.init_prediction_thread_pool(task.threads)
        rows = [pairs(task.X_test, row) for row in range(task.X_test.shape[0])]

        def predict(row):
            return [label for label, _ in model.predict(row, top_k=K)]

        return lambda: padded(threaded(predict, rows, task.threads))

    return prepare, lambda model, path: model.save(str(path)), load


def omikuji_bonsai(task):
    """omikuji's Bonsai settings: shallow trees, unbalanced clusters, 100 children a node."""
    return omikuji(task, cluster_balanced=False, cluster_k=100, max_depth=3)


def omikuji_parabel(task):
    """omikuji's defaults, which are Parabel."""
    return omikuji(task)


def napkinxc(task, kind):
    from napkinxc import models

    def model_at(path):
        options = {"seed": task.seed} if kind == "PLT" else {}
        return getattr(models, kind)(str(path), threads=task.threads, **options)

    working = task.folder / f"napkinxc {kind}"  # it writes its model while it trains

    def load(path):
        model = model_at(path)
        model.load()
        return lambda: padded(model.predict(task.X_test, top_k=K))

    def prepare():
        X, Y = task.X, task.Y
        return lambda: model_at(working).fit(X, Y)

    return prepare, lambda _, path: working.rename(path), load


def napkinxc_plt(task):
    """napkinXC's probabilistic label tree, with its defaults."""
    return napkinxc(task, "PLT")


def napkinxc_one_vs_rest(task):
    """napkinXC's one-versus-rest classifier, which it calls binary relevance (BR), with its defaults."""
    return napkinxc(task, "BR")


def pecos(task, tree=True):
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    def prepare():
        X, Y = task.X, task.Y

        def train():
            clusters = None
            if tree:
                labels = LabelEmbeddingFactory.create(X=X, Y=Y, method="pifa")
                clusters = Indexer.gen(labels, indexer_type="hierarchicalkmeans", seed=task.seed, threads=task.threads)
            return XLinearModel.train(X, Y, C=clusters, threads=task.threads)

        return train

    def load(path):
        model = XLinearModel.load(str(path), is_predict_only=True)
        return lambda: top_columns(model.predict(task.X_test, only_topk=K, threads=task.threads))

    return prepare, lambda model, path: model.save(str(path)), load


def pecos_tree(task):
    """PECOS XR-Linear on a tree of hierarchical k-means, with its defaults."""
    return pecos(task)


def pecos_one_vs_rest(task):
    """PECOS XR-Linear without a tree (one versus rest), with its defaults."""
    return pecos(task, tree=False)


def sklearn_one_vs_rest(task):
    """scikit-learn's one linear SVM per label; the size of the model is that of its coefficients in numpy's format."""
    from joblib import parallel_config
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    def prepare():
        X, Y = task.X.astype(np.float64), task.Y.astype(np.int32)

        def train():
            with parallel_config("threading", n_jobs=task.threads):
                return OneVsRestClassifier(LinearSVC(random_state=task.seed)).fit(X, Y)

        return train

    def save(model, path):
        # A label without training rows has a constant classifier, without coefficients; its own format is pickle.
        labels = [label for label, each in enumerate(model.estimators_) if hasattr(each, "coef_")]
        kept = [model.estimators_[label] for label in labels]
        path.mkdir()
        coefficients = np.vstack([each.coef_ for each in kept]).astype(np.float32)
        np.savez(path / "model.npz", coef=coefficients, bias=[each.intercept_ for each in kept], labels=labels)

    def load(path):
        with np.load(path / "model.npz") as file:
            coefficients, bias, labels = file["coef"].T, file["bias"].ravel(), file["labels"]

        def predict():  # what LinearSVC.decision_function computes
            return labels[np.argsort(-(task.X_test @ coefficients + bias), axis=1, kind="stable")[:, :K]]

        return predict

    return prepare, save, load


def fasttext(task):
    """fastText on the words of the texts, with its one-versus-all loss.

    Lower-case texts, punctuation as separate tokens and 25 epochs are those of its tutorial; the learning rate (lower
    than there) and the size of the vectors are our choice.
    """
    import fasttext

    def prepare():
        path = task.folder / "fasttext.txt"
        with path.open("w", encoding="utf-8") as file:
            for row, text in enumerate(task.texts("train")):
                labels = task.Y.indices[task.Y.indptr[row] : task.Y.indptr[row + 1]]
                if len(labels):
                    file.write(" ".join(f"__label__{label}" for label in labels) + f" {tokens(text)}\n")
        options = {"lr": 0.2, "epoch": 25, "dim": 50, "loss": "ova"}
        return lambda: fasttext.train_supervised(str(path), thread=task.threads, verbose=0, **options)

    def load(path):
        model, texts = fasttext.load_model(str(path)), [tokens(text) for text in task.texts("test")]

        def predict():
            return padded(
                [[int(name.removeprefix("__label__")) for name in row] for row in model.predict(texts, k=K)[0]]
            )

        return predict

    return prepare, lambda model, path: model.save_model(str(path)), load


# Name of the entry: function, Python package, and title in tables and plots.
METHODS = {
    "holobind": (holobind, "holobind", "holobind"),
    "holobind-no-text": (holobind_no_text, "holobind", "holobind --no-text"),
    "omikuji-bonsai": (omikuji_bonsai, "omikuji", "omikuji Bonsai"),
    "omikuji-parabel": (omikuji_parabel, "omikuji", "omikuji Parabel"),
    "napkinxc-plt": (napkinxc_plt, "napkinxc", "napkinXC PLT"),
    "napkinxc-ovr": (napkinxc_one_vs_rest, "napkinxc", "napkinXC, one-vs-rest"),
    "pecos": (pecos_tree, "libpecos", "PECOS"),
    "pecos-ovr": (pecos_one_vs_rest, "libpecos", "PECOS, one-vs-rest"),
    "sklearn-ovr": (sklearn_one_vs_rest, "scikit-learn", "scikit-learn, one-vs-rest"),
    "fasttext": (fasttext, "fasttext", "fastText"),
}


def write_points(path, X, Y):
    """Write the XML-Repository's text format, without rows that have no features, which omikuji cannot read."""
    full = np.flatnonzero(np.diff(X.indptr))
    with path.open("w") as file:
        file.write(f"{len(full)} {X.shape[1]} {Y.shape[1]}\n")
        for row in full:
            labels = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
            file.write(",".join(map(str, labels)) + "".join(f" {f}:{v!s}" for f, v in pairs(X, row)) + "\n")


def pairs(X, row):
    """(feature, value) pairs of a row."""
    at = slice(X.indptr[row], X.indptr[row + 1])
    return list(zip(X.indices[at].tolist(), X.data[at].tolist(), strict=True))


def tokens(text):
    return " ".join(re.findall(r"\w+|[^\w\s]", text.lower()))


def threaded(work, rows, threads):
    if threads == 1:
        return [work(row) for row in rows]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, rows))


def padded(rows):
    """Lists of labels as one array with five columns, filled with -1 where a list is shorter."""
    top = np.full((len(rows), K), -1, np.int64)
    for row, labels in zip(top, rows, strict=True):
        row[: len(labels[:K])] = labels[:K]
    return top


def top_columns(scores):
    """Columns of the five largest values of each row of a sparse matrix."""
    rows = (slice(*ends) for ends in zip(scores.indptr[:-1], scores.indptr[1:], strict=True))
    return padded([scores.indices[at][np.argsort(-scores.data[at], kind="stable")] for at in rows])


def clocks():
    """Wall seconds, and CPU seconds (user and system) of this process, its threads and its finished children."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return np.array([time.perf_counter(), sum(used.ru_utime + used.ru_stime for used in usages)])


def timed(work):
    """Result, wall seconds and CPU seconds of a call."""
    began = clocks()
    result = work()
    wall, cpu = clocks() - began
    return result, wall, cpu


def peak_bytes():
    """The most memory that this process had, or None where the system does not say so.

    `ru_maxrss` is no less than the memory of the process that started this one.
    """
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    return 1024 * int(found[1]) if found else None


def train_model(prepare, save, path):
    """Train and save; CPU and wall seconds of training, the peak memory of the process and the size of the model."""
    train = prepare()
    model, wall, cpu = timed(train)
    peak = peak_bytes()
    save(model, path)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    return {"train cpu s": cpu, "train wall s": wall, "peak bytes": peak, "bytes": size}


def predict_rows(predict, path):
    """Write the top 5 of all test rows; rows a second."""
    top = predict()  # the first pass makes caches and compiles; it is not timed
    passes = []
    while sum(p[0] for p in passes) < MIN_PREDICTION_SECONDS:
        top, *spent = timed(predict)
        passes.append(spent)
    np.save(path, top)
    n = len(top)
    found = {"rows/s": n / min(p[0] for p in passes), "rows/cpu s": n / max(min(p[1] for p in passes), 1e-9)}
    return found | {"median rows/s": n / statistics.median(p[0] for p in passes)}


def main():
    stage, name, folder, threads, seed = sys.argv[1:]
    method, package, _ = METHODS[name]
    task = Task(Path(folder), int(threads), int(seed))
    prepare, save, load = method(task)
    path = task.folder / f"{name}-{seed}"
    if stage == "train":
        print(json.dumps({"version": version(package)} | train_model(prepare, save, path)))
    else:
        print(json.dumps(predict_rows(load(path), path.with_suffix(".npy"))))


if __name__ == "__main__":
    main()
