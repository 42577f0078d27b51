"""Datasets in all the shapes practitioners have them: files, pairs of files, and directories.

A directory is a dataset. Its parts are told by `train` or `trn`, `test` or `tst` in the names of the files:

    xml       train.txt test.txt                              XML-Repository text with its header
    svmlight  train.svm test.svm                              the same lines; the sizes are in a comment
    npz       X.trn.npz Y.trn.npz X.tst.npz Y.tst.npz         scipy matrices
    text      train_texts.txt train_labels.txt, and test_...  a document a line; names of labels, tabs or spaces between
    tsv       train.tsv test.tsv                              a document, then its labels, tabs between
    jsonl     train.jsonl test.jsonl                          {"text": "...", "labels": ["...", "..."]}

`labels.txt` and `features.txt` name the labels and features by line. All but npz may be packed (.gz, .xz, .bz2).
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from holobind._types import CsrArray, ProgressCallback
from holobind.data import sparse_text
from holobind.data.cache import directory
from holobind.data.csr import from_arrays, from_label_ids, widen
from holobind.data.dataset import Dataset, Split
from holobind.data.sparse_text import BROKEN, PACKED, opened
from holobind.data.tfidf import Tfidf
from holobind.errors import DataError, LabelError, OptionError

FORMATS = ("xml", "svmlight", "npz", "text", "tsv", "jsonl")
SPARSE_ENDINGS = (".txt", ".svm", ".svmlight", ".libsvm", ".dat")
LABEL_NAMES = ("labels.txt", "label_names.txt", "output-items.txt", "y.txt")
FEATURE_NAMES = ("features.txt", "feature_names.txt")
ROLES: tuple[tuple[str, str], ...] = (  # the first that fits the name of a file, without packing and in lower case
    (r"x\.[a-z]+\.txt|.*(^|[._-])texts?\.txt", "texts"),
    (r".*[._-]labels\.txt", "labels"),
    (r"(.*[._-])?x([._-].*)?\.npz", "X"),
    (r"(.*[._-])?y([._-].*)?\.npz", "Y"),
    (r".*\.jsonl", "jsonl"),
    (r".*\.tsv", "tsv"),
    (r".*\.(txt|svm|svmlight|libsvm|dat)", "sparse"),
)
SIDES = {"train": r"(^|[._-])(train|trn)([._-]|$)", "test": r"(^|[._-])(test|tst)([._-]|$)"}


@dataclass(frozen=True)
class _Found:
    """One part as it was read; what it lacks is settled when both parts are known."""

    X: CsrArray | None = None
    Y: CsrArray | None = None
    declared: bool = True  # whether the file says how many features and labels there are
    texts: list[str] | None = None
    named: list[list[str]] | None = None  # names of the labels of each point


def load(
    path: str | Path,
    test: str | Path | None = None,
    *,
    one_based: bool = False,
    cache: bool = True,
    memory_map: bool = False,
    progress: ProgressCallback | None = None,
) -> Dataset:
    """Read a dataset: a directory with train and test parts, a file (and another one as its test part), or the name
    of one that was fetched.

    The format is told by the names of the files; `holobind.data.formats` lists them. Where there are only texts, X is
    their tf-idf, fitted on the training part. Parsed text is kept in a binary cache, unless `cache` is false.

        dataset = load("bibtex")
        dataset.train.X, dataset.train.Y, dataset.test.X, dataset.label_names

    one_based   the ids of features and of labels in the text start at 1
    memory_map  for sparse text that is larger than memory: the matrices stay in the cache's file, read-only, and the
                system fetches what is looked at
    progress    called with what is being done and the share of it that is done
    """
    where = Path(path)
    fetched = directory() / "datasets" / where.name.lower()
    if not where.exists() and where.name == str(path) and fetched.is_dir():
        where = fetched
    if memory_map and not cache:
        raise OptionError("memory_map maps the cache's files; it cannot be without cache")
    reading = _Reading(one_based, cache, memory_map, progress)
    if where.is_dir() and test is not None:
        raise OptionError(f"{where} is a directory and holds its own test part; give two files, or the directory alone")
    if where.is_dir():
        return reading.directory(where)
    parts = {"train": where} if test is None else {"train": where, "test": Path(test)}
    found = {side: reading.file(file) for side, file in parts.items()}
    return _assembled(where, found, None, None)


def bare(path: Path) -> str:
    """The name of a file in lower case, without the ending that says how it is packed."""
    return (path.stem if path.suffix.lower() in PACKED else path.name).lower()


def _role(path: Path) -> str | None:
    return next((role for pattern, role in ROLES if re.fullmatch(pattern, bare(path))), None)


@dataclass(frozen=True)
class _Reading:
    one_based: bool
    cache: bool
    memory_map: bool
    progress: ProgressCallback | None

    def sparse(self, path: Path) -> _Found:
        part, declared = sparse_text.read(
            path, one_based=self.one_based, cache=self.cache, memory_map=self.memory_map, progress=self.progress
        )
        return _Found(part.X, part.Y, declared)

    def file(self, path: Path) -> _Found:
        if not path.exists():
            raise DataError(f"{path}: no such file or directory")
        match _role(path):
            case "jsonl":
                return _read_jsonl(path)
            case "tsv":
                return _read_tsv(path)
            case "X":
                labels = path.with_name(re.sub(r"(^|[._-])[xX]([._-])", r"\1Y\2", path.name))
                return _Found(_read_npz(path), _read_npz(labels, labels=True))
            case "texts":
                labels = path.with_name(re.sub(r"(raw_)?texts?(?=\.)", "labels", path.name))
                return _Found(texts=_read_lines(path), named=_read_named(labels))
            case _:
                return self.sparse(path)

    def directory(self, place: Path) -> Dataset:
        files = sorted(f for f in place.iterdir() if f.is_file() and not f.name.startswith("."))
        roles: dict[str, dict[str, Path]] = {"train": {}, "test": {}}
        for file in files:
            side = next((side for side, pattern in SIDES.items() if re.search(pattern, bare(file))), None)
            role = _role(file)
            if side is None or role is None:
                continue
            if other := roles[side].get(role):
                raise DataError(
                    f"{place}: both {other.name} and {file.name} could be the {side} part; keep one of them"
                )
            roles[side][role] = file
        label_names = _names(files, LABEL_NAMES)
        feature_names = _names(files, FEATURE_NAMES)
        found = {side: part for side, its in roles.items() if (part := self.part(its)) is not None}
        if not found:
            found = self.split(place, files)
        if "train" not in found:
            raise DataError(
                f"{place}: there is no training part; expected train.txt, X.trn.npz and Y.trn.npz, train.jsonl, "
                f"train.tsv, or train_texts.txt and train_labels.txt"
            )
        return _assembled(place, found, label_names, feature_names)

    def part(self, its: dict[str, Path]) -> _Found | None:
        if "sparse" in its:
            found = self.sparse(its["sparse"])
        elif "X" in its and "Y" in its:
            found = _Found(_read_npz(its["X"]), _read_npz(its["Y"], labels=True))
        elif "jsonl" in its:
            return _read_jsonl(its["jsonl"])
        elif "tsv" in its:
            return _read_tsv(its["tsv"])
        elif "texts" in its and "labels" in its:
            return _Found(texts=_read_lines(its["texts"]), named=_read_named(its["labels"]))
        else:
            return None
        return replace(found, texts=_read_lines(its["texts"])) if "texts" in its else found

    def split(self, place: Path, files: list[Path]) -> dict[str, _Found]:
        """The repository's small datasets: one file of points, and for each part a file of row numbers from 1.

        Its splits stand side by side in columns; the first one is taken.
        """
        ends = {"data": "_data.txt", "train": "_trsplit.txt", "test": "_tstsplit.txt"}
        its = {role: file for file in files for role, end in ends.items() if bare(file).endswith(end)}
        if len(its) < len(ends):
            return {}
        found = self.sparse(its["data"])
        assert found.X is not None and found.Y is not None
        parts = {}
        for side in ("train", "test"):
            rows = []
            for line, text in enumerate(_read_lines(its[side]), 1):
                first = text.split()[0] if text.split() else ""
                if not first.isdecimal() or not 1 <= int(first) <= found.X.shape[0]:
                    raise DataError(
                        f"{its[side]}:{line}: {first[:40]!r} is not the number of a point (1 to {found.X.shape[0]})"
                    )
                rows.append(int(first) - 1)
            parts[side] = _Found(found.X[rows], found.Y[rows])
        return parts


def _assembled(
    where: Path, found: dict[str, _Found], label_names: list[str] | None, feature_names: list[str] | None
) -> Dataset:
    """Give names their numbers, texts their features, and both parts the same space."""
    tfidf = None
    if any(f.named is not None for f in found.values()):
        if not found["train"].texts:
            raise DataError(f"{where}: there are no training points")
        if label_names is None:
            label_names = sorted({name for f in found.values() for names in f.named or () for name in names})
        number = {name: i for i, name in enumerate(label_names)}
        for side, f in found.items():
            found[side] = replace(f, Y=_numbered(where, f.named or [], number))
    if any(f.X is None for f in found.values()):
        tfidf, X = Tfidf.fit(found["train"].texts or [])
        feature_names = tfidf.words
        found = {
            side: replace(f, X=X if side == "train" else tfidf.transform(f.texts or [])) for side, f in found.items()
        }
    read = {side: (f.X, f.Y) for side, f in found.items() if f.X is not None and f.Y is not None}
    features = max(X.shape[1] for X, _ in read.values())
    labels = max(Y.shape[1] for _, Y in read.values())
    if not any(f.declared for f in found.values()):
        features = max(features, len(feature_names or ()))
        labels = max(labels, len(label_names or ()))
    parts = {}
    for side, (X, Y) in read.items():
        known = found[side].declared
        try:
            parts[side] = Split(X if known else widen(X, features), Y if known else widen(Y, labels), found[side].texts)
        except DataError as error:
            raise DataError(f"{where}: {side}: {error}") from error
    try:
        return Dataset(parts["train"], parts.get("test"), label_names, feature_names, where.resolve().name, tfidf)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def _read_lines(path: Path) -> list[str]:
    """The lines of a text in UTF-8. Only line feeds end lines: documents may hold other separators."""
    with opened(path) as (stream, _):
        try:
            text = stream.read()
        except BROKEN as error:
            raise DataError(f"{path}: the {path.suffix} data is damaged or ends too early ({error})") from error
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{line}: not UTF-8 text ({error.reason})") from error
    return [line.removesuffix("\r") for line in decoded.removesuffix("\n").split("\n")] if decoded else []


def _read_named(path: Path) -> list[list[str]]:
    """Names of labels by line, tabs between them, or spaces in a file that has no tab."""
    lines = _read_lines(path)
    between = "\t" if any("\t" in line for line in lines) else " "
    return [[name for name in line.split(between) if name] for line in lines]


def _read_tsv(path: Path) -> _Found:
    rows = [line.split("\t") for line in _read_lines(path)]
    if rows and [field.lower() for field in rows[0]] in (["text", "labels"], ["text", "label"]):
        rows = rows[1:]
    return _Found(texts=[row[0] for row in rows], named=[[name for name in row[1:] if name] for row in rows])


def _read_jsonl(path: Path) -> _Found:
    texts, named = [], []
    for number, line in enumerate(_read_lines(path), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}:{number}: not JSON ({error})") from error
        text = record.get("text") if isinstance(record, dict) else None
        labels = record.get("labels", record.get("label")) if isinstance(record, dict) else None
        labels = [labels] if isinstance(labels, str | int) else labels
        if (
            not isinstance(text, str)
            or not isinstance(labels, list)
            or not all(isinstance(x, str | int) for x in labels)
        ):
            raise DataError(f'{path}:{number}: expected {{"text": "...", "labels": ["...", "..."]}}')
        texts.append(text)
        named.append([str(label) for label in labels])
    return _Found(texts=texts, named=named)


def _read_npz(path: Path, labels: bool = False) -> CsrArray:
    what = "labels" if labels else "features"
    try:
        read: Any = sparse.csr_array(sparse.load_npz(path))
        read.check_format(full_check=True)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; the features and the labels are a pair of files") from error
    except Exception as error:  # numpy and zipfile raise whatever damaged bytes lead them to
        raise DataError(f"{path}: not a scipy sparse matrix ({' '.join(str(error).split())})") from error
    if read.dtype.kind not in "biuf" or read.ndim != 2:
        raise DataError(f"{path}: expected a matrix of numbers, found {read.dtype} of {read.ndim} dimensions")
    if not np.isfinite(read.data).all():
        raise DataError(f"{path}: the {what} hold nan or inf")
    entries = read.nnz
    read.sum_duplicates()
    if read.nnz != entries:
        raise DataError(f"{path}: a row holds the same column twice")
    if labels:
        read.eliminate_zeros()
        return from_arrays(np.ones(read.nnz, np.int32), read.indices, read.indptr, read.shape)
    with np.errstate(over="ignore"):
        data = read.data.astype(np.float32)
    if not np.isfinite(data).all():
        raise DataError(f"{path}: a value is too large for float32")
    return from_arrays(data, read.indices, read.indptr, read.shape)


def _names(files: list[Path], allowed: Sequence[str]) -> list[str] | None:
    for file in files:
        if bare(file) in allowed:
            return _read_lines(file)
    return None


def _numbered(where: Path, named: list[list[str]], number: dict[str, int]) -> CsrArray:
    rows = []
    for point, names in enumerate(named, 1):
        if unknown := next((name for name in names if name not in number), None):
            raise LabelError(
                f"{where}: label {unknown!r} of point {point} is not among the {len(number)} in labels.txt"
            )
        rows.append(sorted({number[name] for name in names}))
    return from_label_ids(rows, len(number))
