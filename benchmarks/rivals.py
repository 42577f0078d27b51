"""The contenders of `bench_rivals.py`: one of them, trained and asked in a process of its own.

    python benchmarks/rivals.py NAME FOLDER THREADS SEED

FOLDER has what `bench_rivals.py` puts there: train.X.npz, train.Y.npz and test.X.npz (float32, rows of X of length 1),
texts where the data has some, and source.txt, where the data is. The model goes to FOLDER/NAME, its five best labels of
each test row to FOLDER/NAME.npy, -1 where it found fewer. The last line printed is JSON.

This file runs in the contenders' own environments: it needs numpy, scipy and the one contender asked for.

A contender is a function of what is to be learnt that gives three: `train()`, which is timed; `save(model, place)`; and
`load(place)`, which gives a function from nothing to the top five of all test rows, timed too. What turns the data into
the form a contender reads stands before `train` and inside `load`, and is not timed.
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
LONG_ENOUGH = 4.0  # seconds of asking; the fastest pass over the test part counts: what slows others is not the model


@dataclass(frozen=True)
class Task:
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
    def asked(self):
        return sparse.csr_matrix(sparse.load_npz(self.folder / "test.X.npz"))

    def texts(self, part):
        return (self.folder / f"{part}.texts.txt").read_text(encoding="utf-8").split("\n")


def holobind(task, text=None):
    """What `holobind train DATA` makes: of texts, where the data has some."""
    import torch

    import holobind as hb

    torch.set_num_threads(task.threads)
    data = hb.data.load((task.folder / "source.txt").read_text())

    def learn(part):
        config = hb.ModelConfig(seed=task.seed, text=text)
        return hb.learn(part, config, label_names=data.label_names, tfidf=data.tfidf, metadata={"data": data.name})

    # Functions are compiled when they are first called, once on a machine: here, on a few rows, and on few features.
    few = hb.data.Split(data.train.X[:50], data.train.Y[:50], data.train.texts and data.train.texts[:50])
    for part in (few, hb.data.Split(data.train.X[:1200, :100], data.train.Y[:1200])):
        small = hb.learn(part, hb.ModelConfig(text=text))
        small.top_k(small.inputs_of(part), min(K, data.n_labels))

    def load(place):
        model = hb.load(place)
        X = data.test.X if model.tfidf is None else model.tfidf.transform(data.test.texts)
        return lambda: model.top_k(X, min(K, data.n_labels))[1]

    return lambda: learn(data.train), lambda model, place: model.save(place), load


def holobind_features(task):
    """What `holobind train DATA --features` makes: of the features that all others read."""
    return holobind(task, text=False)


def omikuji(task, **settings):
    import omikuji

    lib, ffi = omikuji.lib, omikuji.ffi
    path = task.folder / "omikuji.txt"
    write_points(path, task.X, task.Y)
    # What `Model.train_on_data` does, in two steps, so that reading the file is not timed.
    pool = omikuji._ThreadPoolHandle(task.threads, initialize=True)
    data = lib.load_omikuji_data_set(ffi.new("char[]", str(path).encode()), pool.ptr)
    if data == ffi.NULL:
        raise RuntimeError(f"omikuji does not read {path.name}")
    options = omikuji.Model.default_hyper_param()
    for name, value in settings.items():
        setattr(options, name, value)

    def train():
        return omikuji.Model(lib.train_omikuji_model(data, options, pool.ptr))

    def load(place):
        model = omikuji.Model.load(str(place))
        model.init_prediction_thread_pool(task.threads)
        rows = [pairs(task.asked, row) for row in range(task.asked.shape[0])]

        def ask(row):
            return [label for label, _ in model.predict(row, top_k=K)]

        return lambda: places(threaded(ask, rows, task.threads))

    return train, lambda model, place: model.save(str(place)), load


def omikuji_bonsai(task):
    """Its Bonsai: shallow trees, clusters of any size, a hundred to a node."""
    return omikuji(task, cluster_balanced=False, cluster_k=100, max_depth=3)


def omikuji_parabel(task):
    """Its defaults."""
    return omikuji(task)


def napkinxc(task, kind):
    from napkinxc import models

    def model_at(place):
        options = {"seed": task.seed} if kind == "PLT" else {}
        return getattr(models, kind)(str(place), threads=task.threads, **options)

    working = task.folder / f"napkinxc {kind}"  # it writes its model while it learns

    def load(place):
        model = model_at(place)
        model.load()
        return lambda: places(model.predict(task.asked, top_k=K))

    return lambda: model_at(working).fit(task.X, task.Y), lambda _, place: working.rename(place), load


def napkinxc_plt(task):
    """A probabilistic label tree with its defaults."""
    return napkinxc(task, "PLT")


def napkinxc_br(task):
    """One classifier a label (binary relevance) with its defaults."""
    return napkinxc(task, "BR")


def pecos(task, tree=True):
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    X, Y = task.X, task.Y

    def train():
        clusters = None
        if tree:
            labels = LabelEmbeddingFactory.create(X=X, Y=Y, method="pifa")
            clusters = Indexer.gen(labels, indexer_type="hierarchicalkmeans", seed=task.seed, threads=task.threads)
        return XLinearModel.train(X, Y, C=clusters, threads=task.threads)

    def load(place):
        model = XLinearModel.load(str(place), is_predict_only=True)
        return lambda: best(model.predict(task.asked, only_topk=K, threads=task.threads))

    return train, lambda model, place: model.save(str(place)), load


def pecos_tree(task):
    """XR-Linear on a tree of hierarchical k-means, with its defaults."""
    return pecos(task)


def pecos_one_vs_rest(task):
    """XR-Linear without a tree, with its defaults."""
    return pecos(task, tree=False)


def sklearn_one_vs_rest(task):
    """A linear SVM a label; of its model the coefficients count, as numpy saves them."""
    from joblib import parallel_config
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    X, Y = task.X.astype(np.float64), task.Y.astype(np.int32)
    learnt = {}

    def train():
        with parallel_config("threading", n_jobs=task.threads):
            return OneVsRestClassifier(LinearSVC(random_state=task.seed)).fit(X, Y)

    def save(model, place):
        learnt["model"] = model  # its own file would be a pickle
        kept = [each for each in model.estimators_ if hasattr(each, "coef_")]  # others say always the same
        place.mkdir()
        np.savez(place / "model.npz", coef=np.vstack([e.coef_ for e in kept]), bias=[e.intercept_ for e in kept])

    def load(_):
        unseen = np.asarray(Y.sum(0)).ravel() == 0  # they get a constant 0, above most of what the others get

        def ask():
            scores = learnt["model"].decision_function(task.asked)
            scores[:, unseen] = -np.inf
            return np.argsort(-scores, axis=1, kind="stable")[:, :K]

        return ask

    return train, save, load


def fasttext(task):
    """From the words of the texts, one loss a label.

    Texts in lower case, punctuation apart, 25 epochs, as in its tutorial; the rate, lower than there, and the size of
    the vectors are ours.
    """
    import fasttext

    path = task.folder / "fasttext.txt"
    with path.open("w", encoding="utf-8") as file:
        for row, text in enumerate(task.texts("train")):
            labels = task.Y.indices[task.Y.indptr[row] : task.Y.indptr[row + 1]]
            if len(labels):
                file.write(" ".join(f"__label__{label}" for label in labels) + f" {words(text)}\n")
    options = {"lr": 0.2, "epoch": 25, "dim": 50, "loss": "ova"}

    def train():
        return fasttext.train_supervised(str(path), thread=task.threads, verbose=0, **options)

    def load(place):
        model, asked = fasttext.load_model(str(place)), [words(text) for text in task.texts("test")]

        def ask():
            return places(
                [[int(name.removeprefix("__label__")) for name in row] for row in model.predict(asked, k=K)[0]]
            )

        return ask

    return train, lambda model, place: model.save_model(str(place)), load


# Its name in tables, and the package that it comes from.
CONTENDERS = {
    "holobind": (holobind, "holobind"),
    "holobind-features": (holobind_features, "holobind"),
    "omikuji-bonsai": (omikuji_bonsai, "omikuji"),
    "omikuji-parabel": (omikuji_parabel, "omikuji"),
    "napkinxc-plt": (napkinxc_plt, "napkinxc"),
    "napkinxc-br": (napkinxc_br, "napkinxc"),
    "pecos": (pecos_tree, "libpecos"),
    "pecos-ovr": (pecos_one_vs_rest, "libpecos"),
    "sklearn-ovr": (sklearn_one_vs_rest, "scikit-learn"),
    "fasttext": (fasttext, "fasttext"),
}


def write_points(path, X, Y):
    """The XML-Repository's text, without the rows that have no features: omikuji cannot read a line that ends there."""
    full = np.flatnonzero(np.diff(X.indptr))
    with path.open("w") as file:
        file.write(f"{len(full)} {X.shape[1]} {Y.shape[1]}\n")
        for row in full:
            labels = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
            file.write(",".join(map(str, labels)) + "".join(f" {f}:{v!s}" for f, v in pairs(X, row)) + "\n")


def pairs(X, row):
    at = slice(X.indptr[row], X.indptr[row + 1])
    return list(zip(X.indices[at].tolist(), X.data[at].tolist(), strict=True))


def words(text):
    return " ".join(re.findall(r"\w+|[^\w\s]", text.lower()))


def threaded(work, rows, threads):
    if threads == 1:
        return [work(row) for row in rows]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, rows))


def places(rows):
    """Lists of up to five labels as one array, -1 where there are fewer."""
    top = np.full((len(rows), K), -1, np.int64)
    for row, labels in zip(top, rows, strict=True):
        row[: len(labels[:K])] = labels[:K]
    return top


def best(scores):
    """The columns of a sparse matrix's five largest values, row by row."""
    rows = (slice(*ends) for ends in zip(scores.indptr[:-1], scores.indptr[1:], strict=True))
    return places([scores.indices[at][np.argsort(-scores.data[at], kind="stable")] for at in rows])


def clocks():
    """Wall seconds, and CPU seconds (user and system) of this process, its threads and the children it waited for."""
    spent = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return np.array([time.perf_counter(), sum(used.ru_utime + used.ru_stime for used in spent)])


def timed(work):
    began = clocks()
    found = work()
    wall, cpu = clocks() - began
    return found, wall, cpu


def main():
    name, folder, threads, seed = sys.argv[1:]
    contender, package = CONTENDERS[name]
    task = Task(Path(folder), int(threads), int(seed))
    train, save, load = contender(task)
    model, wall, cpu = timed(train)
    place = task.folder / name
    save(model, place)
    del model
    ask = load(place)
    ask()  # what is made or compiled when first asked for is not in it
    passes = []
    while sum(p[0] for p in passes) < LONG_ENOUGH:
        top, *spent = timed(ask)
        passes.append(spent)
    np.save(task.folder / f"{name}.npy", top)
    files = [place] if place.is_file() else [file for file in place.rglob("*") if file.is_file()]
    n = task.asked.shape[0]
    told = {"version": version(package), "train cpu s": cpu, "train wall s": wall}
    told |= {"rows/s": n / min(p[0] for p in passes), "rows/cpu s": n / max(min(p[1] for p in passes), 1e-9)}
    told |= {"median rows/s": n / statistics.median(p[0] for p in passes)}
    told |= {"bytes": sum(file.stat().st_size for file in files)}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
