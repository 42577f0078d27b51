"""Attacks of benchmarks/campaign.py that run in one process: mutated files, expressions, command lines.

An attack returns "" if it survived, or what went wrong; a crash ends the process.
"""

import contextlib
import functools
import gzip
import io
import json
import os
import random
import shutil
import struct
import sys
import tarfile
import tempfile
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXTREMES = (0, 1, -1, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63), 10**6)
WORDS = ("red", "cat", "a", "x1", "first", "name", '"two words"', "'q'", "⊗", "naïve", "30", "0.5", "1e3", "1e400", "")
SIGNS = ("*", "+", "-", "~", "(", ")", " ", "**", "++", "\n", "\t", "\x00", "\ud800", "_", ",", "=", "/")


# Mutations of bytes


def mutate(data: bytes, draw: random.Random) -> bytes:
    """One to four changes: flipped bits, extreme integers, cuts, repeats, insertions."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(changed) + 1)
        match draw.randrange(6):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << draw.randrange(8)
            case 1:
                number = struct.pack("<q", draw.choice(EXTREMES) if draw.random() < 0.5 else draw.getrandbits(62))
                size = draw.choice((2, 4, 8))
                changed[at : at + size] = number[:size]
            case 2:
                del changed[at:]
            case 3:
                del changed[at : at + draw.randint(1, 50)]
            case 4:
                changed[at:at] = changed[at : at + draw.randint(1, 50)]
            case _:
                changed[at:at] = draw.choice(
                    (b"\x00", b"\xff" * 9, b"\n", b"9" * 5000, b"{", b'"', b"1e999", b",", b":")
                )
    return bytes(changed)


def mutate_safetensors(data: bytes, draw: random.Random) -> bytes:
    """A change of the file's structure: of a value in its JSON header, or of the integers of a tensor."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    body = bytearray(data[8 + length :])
    tensors = [name for name in header if name != "__metadata__"]
    if draw.random() < 0.5 and tensors:
        info = header[draw.choice(tensors)]
        first, last = info["data_offsets"]
        width = {"I64": 8, "I32": 4, "F32": 4, "F16": 2, "I16": 2, "U8": 1, "I8": 1}.get(info["dtype"], 1)
        for _ in range(draw.randint(1, 3)):
            if last - first >= width:
                at = first + draw.randrange((last - first) // width) * width
                number = draw.choice(EXTREMES) & (2 ** (8 * width) - 1)
                body[at : at + width] = number.to_bytes(width, "little")
    else:
        described = json.loads(header["__metadata__"]["holobind"])
        _change(described, draw)
        header["__metadata__"]["holobind"] = json.dumps(described)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bytes(body)


def mutate_cache(data: bytes, draw: random.Random) -> bytes:
    """A change of the JSON or of the numbers of a cache file, with a digest that fits."""
    import numpy as np

    from holobind.data import cache

    length = int.from_bytes(data[48:56], "little")
    header, body = json.loads(data[56 : 56 + length]), data[56 + length :]
    arrays = {}
    for name, dtype, n in header["arrays"]:
        size = n * np.dtype(dtype).itemsize
        arrays[name], body = np.frombuffer(body[:size], dtype).copy(), body[size:]
    if draw.random() < 0.4:
        part = draw.choice(("metadata", "arrays"))
        _change(header[part], draw)
    else:
        array = draw.choice([array for array in arrays.values() if len(array)])
        for _ in range(draw.randint(1, 3)):
            limits = np.iinfo(np.int32 if array.dtype.itemsize == 4 else np.int64)
            number = min(max(draw.choice(EXTREMES), limits.min), limits.max)
            array.view(limits.dtype)[draw.randrange(len(array))] = number
    text = json.dumps(header).encode()
    start = cache.MAGIC + cache._digest(text, arrays) + len(text).to_bytes(8, "little") + text
    return start + b"".join(array.tobytes() for array in arrays.values())


def _change(value: Any, draw: random.Random) -> None:
    """Change one value somewhere in nested JSON."""
    while isinstance(value, dict | list) and value:
        key = draw.choice(list(value)) if isinstance(value, dict) else draw.randrange(len(value))
        if isinstance(value[key], dict | list) and value[key] and draw.random() < 0.8:
            value = value[key]
            continue
        value[key] = draw.choice((*EXTREMES, None, "", "x" * 1000, [], {}, [0] * 1000, True, 1e308, "NaN", [[[]]]))
        return


# Loaders: what reads a file, and an example of it


def make_examples(folder: Path) -> None:
    """A valid file for every loader; small, so that mutations reach everything."""
    import numpy as np

    import holobind as hb
    from holobind.training import loop
    from holobind.training.config import split_options

    texts = [f"{word} number{i} of the {other}" for i in range(12) for word in ("read", "join") for other in "ab"]
    labels = [[f"l{i % 5}", f"l{i % 3}"] for i in range(len(texts))]
    lines = [json.dumps({"text": t, "labels": names}) for t, names in zip(texts, labels, strict=True)]
    (folder / "data.jsonl").write_text("\n".join(lines), encoding="utf-8")
    tsv = ["\t".join([t, *names]) for t, names in zip(texts, labels, strict=True)]
    (folder / "data.tsv").write_text("\n".join(tsv), encoding="utf-8")
    dataset = hb.data.load(folder / "data.jsonl", cache=False)
    hb.data.write(dataset, folder / "data.txt")
    hb.data.write(dataset, folder / "data.svm")
    hb.data.write(dataset, folder / "npz", to="npz")
    hb.data.write(dataset, folder / "data.txt.bz2")
    hb.data.write(dataset, folder / "data.txt.xz")
    for suffix in ("zip", "tar.gz"):
        _pack(folder / "data.txt", folder / f"archive.{suffix}")
    shutil.copy(folder / "npz" / "X.trn.npz", folder / "X.npz")
    (folder / "train_texts.txt").write_text("\n".join(texts), encoding="utf-8")
    (folder / "train_labels.txt").write_text("\n".join(map(" ".join, labels)), encoding="utf-8")
    requests = ('{"text": "read b"}', '{"features": {"1": 0.5, "3": 2}}', "1:0.5 3:2", "join number1")
    (folder / "lines.jsonl").write_text("\n".join(requests), encoding="utf-8")
    shutil.copy(folder / "data.txt", folder / "cached.txt")
    _cache_of(folder / "cached.txt", folder / "data.cache")
    (folder / "words.vec").write_text("2 3\nread 1 2 3\njoin 4 5 6\n", encoding="utf-8")
    small = {"hidden": (4,), "dim": 6, "epochs": 1, "embedding_dim": 4, "filters": 2, "hidden_size": 3}
    for name, options in {
        "ridge_knn": {},
        "ridge": {"knn_weight": 0},
        "fc": {"network": "fc", **{k: small[k] for k in ("hidden", "dim", "epochs")}},
        "cnn": {
            "network": "cnn",
            "tokenizer": "bpe",
            "vocab_size": 300,
            **{k: v for k, v in small.items() if k != "hidden_size"},
        },
        "lstm": {"network": "lstm", **{k: v for k, v in small.items() if k != "filters"}},
        "linear": {"head": "linear"},
    }.items():
        model = hb.learn(dataset.train, *split_options(options), label_names=dataset.label_names, tfidf=dataset.tfidf)
        model.save(folder / f"{name}.model")
    trees = hb.data.synthetic("delicious", scale=0.2)
    hb.learn(trees.train).save(folder / "forest.model")
    vocabulary = hb.Vocabulary(16)
    vocabulary.parse("red*cat + blue*dog")
    vocabulary.save(folder / "names.vocabulary")
    hb.LargeVocabulary([f"n{i}" for i in range(40)], 16).save(folder / "large.vocabulary")
    fc = hb.load(folder / "fc.model")
    loop.fit(
        fc,
        fc.examples(dataset.train.texts),
        dataset.train.Y,
        hb.TrainConfig(epochs=1),
        checkpoint=folder / "fc.checkpoint",
    )
    assert np.isfinite(fc.scores(["read"])).all()


def _pack(file: Path, archive: Path) -> None:
    """An archive of one file; the same bytes every time."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr(zipfile.ZipInfo("train.txt"), file.read_bytes())
        return
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as packed:
        member = tarfile.TarInfo("train.txt")
        member.size = file.stat().st_size
        packed.addfile(member, io.BytesIO(file.read_bytes()))
    archive.write_bytes(gzip.compress(content.getvalue(), mtime=0))


def _cache_of(source: Path, target: Path) -> None:
    """The cache file of a text, which is too small to get one otherwise."""
    from holobind.data import cache, sparse_text

    before, sparse_text.MIN_BYTES_TO_CACHE = sparse_text.MIN_BYTES_TO_CACHE, 0
    try:
        sparse_text.read(source)
    finally:
        sparse_text.MIN_BYTES_TO_CACHE = before
    shutil.move(cache.cache_path(source, one_based=False), target)


def _read_model(path: Path) -> None:
    """Load a model and use all of it: what passes the checks must be safe to predict with."""
    import numpy as np

    import holobind as hb
    from holobind.cli.describe import description, table

    model = hb.load(path)
    inputs: Any = ["read number1", "", "join b"]
    if not model.reads_texts:
        inputs = np.eye(3, model.network.n_features or 1, dtype=np.float32)
    model.top_k(inputs, min(3, model.n_labels))
    table({"path": str(path), **description(model), "bytes": 1})


def _read_checkpoint(path: Path) -> None:
    import holobind as hb
    from holobind.training import loop

    model, split = hb.load(path.parent / "fc.model"), _training_split(path.parent)
    examples = model.examples(split.texts)
    loop.fit(model, examples, split.Y, hb.TrainConfig(epochs=1), checkpoint=path, resume=True)


@functools.cache
def _training_split(folder: Path) -> Any:
    import holobind as hb

    return hb.data.load(folder / "data.jsonl", cache=False).train


def _read_vocabulary(path: Path) -> None:
    import holobind as hb

    vocabulary = hb.Vocabulary.load(path)
    if len(vocabulary):
        vocabulary.clean_up(vocabulary[next(iter(vocabulary))], 2)


def _read_data(path: Path) -> None:
    import holobind as hb

    hb.data.statistics(hb.data.load(path, cache=False))


def _read_cached_data(path: Path) -> None:
    """The text is valid; its cache is the file that was changed. Whatever that holds, the data is right or refused."""
    from holobind.data import cache, sparse_text

    source = path.parent / "cached.txt"
    cached = cache.cache_path(source, one_based=False)
    cached.parent.mkdir(parents=True, exist_ok=True)
    path.replace(cached)
    for memory_map in (False, True):
        max_ids = sparse_text._max_ids(source, None)
        found = sparse_text._read_cached(cached, cache.fingerprint(source), memory_map, max_ids)
        if found is not None:
            found[0].X @ found[0].X.T
            found[0].Y @ found[0].Y.T


def _unpack(path: Path) -> None:
    from holobind.data.archives import unpack

    target = path.with_name(f"{path.name}-unpacked")
    try:
        unpack(path, target)
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _read_matrix(path: Path) -> None:
    from holobind.data.npz import read_npz

    X = read_npz(path)
    assert (X.indices < X.shape[1]).all() and (X @ X.T).shape == (X.shape[0], X.shape[0])


def _read_labels(path: Path) -> None:
    """A pair of files, of which the labels were changed."""
    import holobind as hb

    texts = path.with_name(path.name.replace("labels", "texts"))
    shutil.copy(path.parent / "train_texts.txt", texts)
    try:
        hb.data.statistics(hb.data.load(texts, cache=False))
    finally:
        texts.unlink()


def _predict_lines(path: Path) -> None:
    """Lines for `predict`, of every kind, by a model of texts and a model of features."""
    from holobind.cli import stream

    for name in ("fc.model", "forest.model"):
        model = _model(path.parent / name)
        for on_error in (None, lambda error: None):
            with contextlib.suppress(*(() if on_error else (_holobind_error(),))):
                for batch in stream.predictions(model, stream.read_chunks(path), 2, source="lines", on_error=on_error):
                    json.dumps(batch)


@functools.cache
def _model(path: Path) -> Any:
    import holobind as hb

    return hb.load(path)


def _read_word_vectors(path: Path) -> None:
    from holobind.data.tokenizer import load_word_vectors

    load_word_vectors(path, _tokenizer())


@functools.cache
def _tokenizer() -> Any:
    from holobind.data.tokenizer import Tokenizer

    return Tokenizer.train(["read the file", "join the read"], min_count=1)


LOADERS: dict[str, Callable[[Path], None]] = {
    **{f"{name}.model": _read_model for name in ("ridge_knn", "ridge", "fc", "cnn", "lstm", "linear", "forest")},
    "fc.checkpoint": _read_checkpoint,
    "names.vocabulary": _read_vocabulary,
    "large.vocabulary": _read_vocabulary,
    **{f"data.{suffix}": _read_data for suffix in ("jsonl", "tsv", "txt", "svm", "txt.bz2", "txt.xz")},
    "words.vec": _read_word_vectors,
    "data.cache": _read_cached_data,
    "archive.zip": _unpack,
    "archive.tar.gz": _unpack,
    "X.npz": _read_matrix,
    "train_labels.txt": _read_labels,
    "lines.jsonl": _predict_lines,
}
STRUCTURED: dict[str, Callable[[bytes, random.Random], bytes]] = {
    **dict.fromkeys((".model", ".checkpoint", ".vocabulary"), mutate_safetensors),
    ".cache": mutate_cache,
}
STRUCTURED_FRACTION = 0.6  # of the changes of files that have a structure


def attack_file(folder: Path, loader: str, seed: int) -> str:
    """Read a mutated file."""
    draw = random.Random(f"{loader} {seed}")
    change = STRUCTURED.get(Path(loader).suffix, mutate)
    if draw.random() >= STRUCTURED_FRACTION:
        change = mutate
    path = folder / f"changed-{os.getpid()}-{loader}"
    path.write_bytes(change(_content(folder / loader), draw))
    try:
        return _expected_error(lambda: LOADERS[loader](path))
    finally:
        path.unlink(missing_ok=True)


@functools.cache
def _content(path: Path) -> bytes:
    return path.read_bytes()


def attack_expression(seed: int) -> str:
    """Evaluate and query a random statement."""
    import holobind as hb

    draw = random.Random(seed)
    text = "".join(draw.choice(WORDS if draw.random() < 0.6 else SIGNS) for _ in range(draw.randint(0, 30)))
    if draw.random() < 0.02:
        text *= draw.choice((50, 5000))

    def evaluate() -> None:
        vocabulary = hb.Vocabulary(16, vsa=draw.choice(("unitary-hrr", "hrr-exact", "vtb", "map-c-exact")))
        vector = vocabulary.parse(text)
        if not vector.isfinite().all():
            raise AssertionError(f"{text[:60]!r} has a vector that is not finite")
        if len(vocabulary):
            vocabulary.ask(vector, next(iter(vocabulary)), 2)

    return _expected_error(evaluate)


VERBS: dict[str, tuple[str, ...]] = {
    "evaluate": ("-k", "--json"),
    "predict": ("-k", "--threshold", "--format", "--ids", "--skip-bad", "--out", "--max-uncompressed"),
    "inspect": ("--json",),
    "ask": ("--query", "--dim", "--seed", "-k", "--has", "--vocabulary"),
    "data stats": ("--json", "--plot", "--one-based", "--max-uncompressed"),
    "data convert": ("--to", "--compression", "--one-based", "--max-uncompressed", "--json"),
    "data make synthetic": ("--scale", "--seed", "--out", "--to", "--compression", "--json"),
    "data make python-calls": ("--packages", "--out", "--to", "--compression", "--json"),
    "data fetch": ("--file", "--url", "--sha256", "--max-download", "--max-uncompressed", "--allow-http", "--json"),
    "train": ("--dim", "--l2", "--knn-weight", "--network", "--hidden", "--loss", "--seed", "--metric"),
    "compare": ("--seed", "--out", "--max-uncompressed", "--json", "--time-limit"),
    "nonsense": ("--help",),
}


def attack_command(folder: Path, seed: int) -> str:
    """Run a random command line in this process and an empty directory: exit code 0, or 2 with one line on stderr."""
    with tempfile.TemporaryDirectory(dir=folder) as place, contextlib.chdir(place):
        return _attack_command(folder, seed)


def _attack_command(folder: Path, seed: int) -> str:
    from holobind.cli import main as cli

    draw = random.Random(seed)
    values = ("0", "-1", "1e999", "nan", "9" * 5000, "x", "", "\udcff", "12", "0.5", "fc", str(folder / "data.jsonl"))
    files = [str(folder / name) for name in ("data.jsonl", "ridge_knn.model", "names.vocabulary", "missing", "npz", "")]
    verb = draw.choice(list(VERBS))
    arguments = verb.split()
    if verb in ("data make synthetic", "data fetch"):
        arguments.append(draw.choice(("bibtex", *values)))
    elif verb != "data make python-calls":  # without packages it would read the whole standard library
        arguments += [draw.choice(files) for _ in range(draw.randint(0, 3))]
    for _ in range(draw.randint(0, 3)):
        arguments += [draw.choice(VERBS[verb]), *([draw.choice(values)] if draw.random() < 0.8 else [])]
    arguments += {
        "train": ["--out", "out.safetensors"],
        "compare": ["--epochs", "1"],
        "data make synthetic": ["--scale", draw.choice(("0.01", "nan", "-1", "0"))],
        "data make python-calls": ["--packages", draw.choice(("typer", "json", "missing", "a.b", ""))],
    }.get(verb, [])
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    before, sys.argv = sys.argv, ["holobind", *arguments]
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(b""))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
        code: Any = 0
    except SystemExit as ended:
        code = ended.code or 0
    except Exception:
        return f"{arguments}: {traceback.format_exc(limit=-3)}"
    finally:
        sys.argv, sys.stdin = before, stdin
    said = [line for line in err.getvalue().splitlines() if not line.startswith("SHA-256 ")]
    if code == 2 and verb != "nonsense" and len(said) != 1 and "Usage" not in err.getvalue():
        return f"{arguments}: exit code 2 with {len(said)} lines: {err.getvalue()[:300]!r}"
    return "" if code in (0, 2) else f"{arguments}: exit code {code}"


def _holobind_error() -> type[Exception]:
    from holobind.errors import HolobindError

    return HolobindError


def _expected_error(action: Callable[[], None]) -> str:
    """Run an action that may raise a HolobindError of one line, for another reason than memory, and nothing else."""
    try:
        action()
    except _holobind_error() as error:
        if "\n" in str(error):
            return f"an error of several lines: {error}"
        return f"out of memory: {error}" if _is_out_of_memory(error) else ""
    except Exception:
        return traceback.format_exc(limit=-4)
    return ""


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether the limit of the process was reached: without a limit, so much memory would have been taken."""
    while error is not None:
        if isinstance(error, MemoryError) or "can't allocate" in str(error) or "Unable to allocate" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
