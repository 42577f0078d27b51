"""Load datasets from the formats in which practitioners keep them: files, pairs of files, and directories.

A directory is a dataset. `train` or `trn`, `test` or `tst` in the names of its files identify the splits:

    xml       train.txt test.txt                              XML-Repository text with its header
    svmlight  train.svm test.svm                              the same lines; the header is a comment
    npz       X.trn.npz Y.trn.npz X.tst.npz Y.tst.npz         scipy matrices
    text      train_texts.txt train_labels.txt, and test_...  one document per line; label names, tabs or spaces between
    tsv       train.tsv test.tsv                              a document, then its labels, separated by tabs
    jsonl     train.jsonl test.jsonl                          {"text": "...", "labels": ["...", "..."]}

`labels.txt` and `features.txt` hold the names of labels and features, one per line. All files but npz may be compressed
(.gz, .xz, .bz2).
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
from holobind.data.cache import cache_dir
from holobind.data.csr import canonical_csr, from_arrays, from_label_ids, widen
from holobind.data.dataset import Dataset, Split
from holobind.data.files import DECOMPRESSION_ERRORS, open_binary, uncompressed_name
from holobind.data.tfidf import Tfidf
from holobind.errors import DataError, LabelError, OptionError

FORMATS = ("xml", "svmlight", "npz", "text", "tsv", "jsonl")
LABEL_NAME_FILES = ("labels.txt", "label_names.txt", "output-items.txt", "y.txt")
FEATURE_NAME_FILES = ("features.txt", "feature_names.txt")
# The role of a file is that of the first pattern which matches its name, in lower case and without .gz, .xz or .bz2.
FILE_ROLES: tuple[tuple[str, str], ...] = (
    (r"x\.[a-z]+\.txt|.*(^|[._-])texts?\.txt", "texts"),
    (r".*[._-]labels\.txt", "labels"),
    (r"(.*[._-])?x([._-].*)?\.npz", "X"),
    (r"(.*[._-])?y([._-].*)?\.npz", "Y"),
    (r".*\.jsonl", "jsonl"),
    (r".*\.tsv", "tsv"),
    (r".*\.(txt|svm|svmlight|libsvm|dat)", "sparse"),
)
SPLIT_PATTERNS = {"train": r"(^|[._-])(train|trn)([._-]|$)", "test": r"(^|[._-])(test|tst)([._-]|$)"}


@dataclass(frozen=True)
class _RawSplit:
    """One split as it was read. `_assemble` computes what is missing when both splits are known.

    fixed_shape   whether the file determines the number of features and labels
    label_names   the names of the labels of each point, where labels are names
    """

    X: CsrArray | None = None
    Y: CsrArray | None = None
    fixed_shape: bool = True
    texts: list[str] | None = None
    label_names: list[list[str]] | None = None


def load(
    path: str | Path,
    test: str | Path | None = None,
    *,
    one_based: bool = False,
    cache: bool = True,
    memory_map: bool = False,
    on_progress: ProgressCallback | None = None,
) -> Dataset:
    """Load a dataset: a directory with a training and a test split, a file (and a second file as the test split), or
    the name of a fetched dataset.

    The names of the files identify the format; `holobind.data.formats` lists the formats. If there are only texts, X is
    their tf-idf, fitted on the training split. Parsed text is kept in a binary cache, unless `cache` is false.

        dataset = load("bibtex")
        dataset.train.X, dataset.train.Y, dataset.test.X, dataset.label_names

    one_based     the ids of features and of labels in sparse text start at 1
    memory_map    for sparse text that is larger than memory: the matrices stay in the cache file, read-only, and the
                  operating system loads the pages that are used
    on_progress   called with a description of the current step and the fraction of it that is done
    """
    where = Path(path)
    fetched = cache_dir() / "datasets" / where.name.lower()
    if not where.exists() and where.name == str(path) and fetched.is_dir():
        where = fetched
    if memory_map and not cache:
        raise OptionError("memory_map maps the cache's files, so it needs cache=True")
    loader = _Loader(one_based, cache, memory_map, on_progress)
    if where.is_dir() and test is not None:
        raise OptionError(f"{where} is a directory with its own test split; give two files, or the directory alone")
    if where.is_dir():
        return loader.load_directory(where)
    files = {"train": where} if test is None else {"train": where, "test": Path(test)}
    return _assemble(where, {name: loader.read_file(file) for name, file in files.items()}, None, None)


def _role(path: Path) -> str | None:
    return next((role for pattern, role in FILE_ROLES if re.fullmatch(pattern, uncompressed_name(path))), None)


@dataclass(frozen=True)
class _Loader:
    """Reads files with the options of `load`."""

    one_based: bool
    cache: bool
    memory_map: bool
    on_progress: ProgressCallback | None

    def read_sparse(self, path: Path) -> _RawSplit:
        split, has_header = sparse_text.read(
            path,
            one_based=self.one_based,
            cache=self.cache,
            memory_map=self.memory_map,
            on_progress=self.on_progress,
        )
        return _RawSplit(split.X, split.Y, has_header)

    def read_file(self, path: Path) -> _RawSplit:
        """Read one file, or the pair of files to which it belongs."""
        if not path.exists():
            raise DataError(f"{path}: no such file or directory")
        match _role(path):
            case "jsonl":
                return _read_jsonl(path)
            case "tsv":
                return _read_tsv(path)
            case "X":
                labels = path.with_name(re.sub(r"(^|[._-])[xX]([._-])", r"\1Y\2", path.name))
                return _RawSplit(_read_npz(path), _read_npz(labels, labels=True))
            case "texts":
                labels = path.with_name(re.sub(r"(raw_)?texts?(?=\.)", "labels", path.name))
                return _RawSplit(texts=_read_lines(path), label_names=_read_label_names(labels))
            case _:
                return self.read_sparse(path)

    def load_directory(self, folder: Path) -> Dataset:
        files = sorted(f for f in folder.iterdir() if f.is_file() and not f.name.startswith("."))
        roles: dict[str, dict[str, Path]] = {"train": {}, "test": {}}
        for file in files:
            stem = uncompressed_name(file)
            name = next((name for name, pattern in SPLIT_PATTERNS.items() if re.search(pattern, stem)), None)
            role = _role(file)
            if name is None or role is None:
                continue
            if other := roles[name].get(role):
                raise DataError(
                    f"{folder}: both {other.name} and {file.name} could be the {name} split; keep one of them"
                )
            roles[name][role] = file
        label_names = _read_names(files, LABEL_NAME_FILES)
        feature_names = _read_names(files, FEATURE_NAME_FILES)
        found = {name: split for name, by_role in roles.items() if (split := self.read_split(by_role)) is not None}
        if not found:
            found = self.read_split_files(files)
        if "train" not in found:
            raise DataError(
                f"{folder}: there is no training split; expected train.txt, X.trn.npz and Y.trn.npz, train.jsonl, "
                f"train.tsv, or train_texts.txt and train_labels.txt"
            )
        return _assemble(folder, found, label_names, feature_names)

    def read_split(self, by_role: dict[str, Path]) -> _RawSplit | None:
        """Read the files of one split; None if they do not make a split."""
        if "sparse" in by_role:
            found = self.read_sparse(by_role["sparse"])
        elif "X" in by_role and "Y" in by_role:
            found = _RawSplit(_read_npz(by_role["X"]), _read_npz(by_role["Y"], labels=True))
        elif "jsonl" in by_role:
            return _read_jsonl(by_role["jsonl"])
        elif "tsv" in by_role:
            return _read_tsv(by_role["tsv"])
        elif "texts" in by_role and "labels" in by_role:
            return _RawSplit(texts=_read_lines(by_role["texts"]), label_names=_read_label_names(by_role["labels"]))
        else:
            return None
        return replace(found, texts=_read_lines(by_role["texts"])) if "texts" in by_role else found

    def read_split_files(self, files: list[Path]) -> dict[str, _RawSplit]:
        """The repository's small datasets: one file of all points, and for each split a file of point numbers from 1.

        The columns of a split file are alternative splits; the first column is used.
        """
        endings = {"data": "_data.txt", "train": "_trsplit.txt", "test": "_tstsplit.txt"}
        by_role = {
            role: file for file in files for role, end in endings.items() if uncompressed_name(file).endswith(end)
        }
        if len(by_role) < len(endings):
            return {}
        found = self.read_sparse(by_role["data"])
        assert found.X is not None and found.Y is not None
        splits = {}
        for name in ("train", "test"):
            rows = []
            for line, text in enumerate(_read_lines(by_role[name]), 1):
                first = text.split()[0] if text.split() else ""
                if not first.isdecimal() or not 1 <= int(first) <= found.X.shape[0]:
                    raise DataError(
                        f"{by_role[name]}:{line}: {first[:40]!r} is not the number of a point (1 to {found.X.shape[0]})"
                    )
                rows.append(int(first) - 1)
            splits[name] = _RawSplit(found.X[rows], found.Y[rows])
        return splits


def _assemble(
    where: Path, found: dict[str, _RawSplit], label_names: list[str] | None, feature_names: list[str] | None
) -> Dataset:
    """Turn label names into label ids and texts into features, and give all splits the same features and labels."""
    tfidf = None
    if any(raw.label_names is not None for raw in found.values()):
        if not found["train"].texts:
            raise DataError(f"{where}: there are no training points")
        if label_names is None:
            label_names = sorted({name for raw in found.values() for names in raw.label_names or () for name in names})
        label_ids = {name: i for i, name in enumerate(label_names)}
        for split_name, raw in found.items():
            found[split_name] = replace(raw, Y=_label_matrix(where, raw.label_names or [], label_ids))
    if any(raw.X is None for raw in found.values()):
        tfidf, X_train = Tfidf.fit(found["train"].texts or [])
        feature_names = tfidf.words
        found = {
            split_name: replace(raw, X=X_train if split_name == "train" else tfidf.transform(raw.texts or []))
            for split_name, raw in found.items()
        }
    matrices = {name: (raw.X, raw.Y) for name, raw in found.items() if raw.X is not None and raw.Y is not None}
    n_features = max(X.shape[1] for X, _ in matrices.values())
    n_labels = max(Y.shape[1] for _, Y in matrices.values())
    if not any(raw.fixed_shape for raw in found.values()):
        n_features = max(n_features, len(feature_names or ()))
        n_labels = max(n_labels, len(label_names or ()))
    splits = {}
    for split_name, (X, Y) in matrices.items():
        raw = found[split_name]
        same_shape = (X, Y) if raw.fixed_shape else (widen(X, n_features), widen(Y, n_labels))
        try:
            splits[split_name] = Split(*same_shape, raw.texts)
        except DataError as error:
            raise DataError(f"{where}: {split_name}: {error}") from error
    try:
        return Dataset(splits["train"], splits.get("test"), label_names, feature_names, where.resolve().name, tfidf)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def _read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text. Only a line feed ends a line, because documents may contain other line separators."""
    with open_binary(path) as (stream, _):
        try:
            text = stream.read()
        except DECOMPRESSION_ERRORS as error:
            raise DataError(f"{path}: the {path.suffix} data is damaged or ends too early ({error})") from error
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{line}: not UTF-8 text ({error.reason})") from error
    return [line.removesuffix("\r") for line in decoded.removesuffix("\n").split("\n")] if decoded else []


def _read_label_names(path: Path) -> list[list[str]]:
    """The label names of each line, separated by tabs, or by spaces in a file without tabs."""
    lines = _read_lines(path)
    separator = "\t" if any("\t" in line for line in lines) else " "
    return [[name for name in line.split(separator) if name] for line in lines]


def _read_tsv(path: Path) -> _RawSplit:
    rows = [line.split("\t") for line in _read_lines(path)]
    if rows and [field.lower() for field in rows[0]] in (["text", "labels"], ["text", "label"]):
        rows = rows[1:]
    label_names = [[name for name in row[1:] if name] for row in rows]
    return _RawSplit(texts=[row[0] for row in rows], label_names=label_names)


def _read_jsonl(path: Path) -> _RawSplit:
    texts, label_names = [], []
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
        label_names.append([str(label) for label in labels])
    return _RawSplit(texts=texts, label_names=label_names)


def _read_npz(path: Path, labels: bool = False) -> CsrArray:
    what = "labels" if labels else "features"
    try:
        matrix: Any = sparse.csr_array(sparse.load_npz(path))
        matrix.check_format(full_check=True)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; the features and the labels are a pair of files") from error
    except Exception as error:  # damaged bytes make numpy and zipfile raise many types of exception
        raise DataError(f"{path}: not a scipy sparse matrix ({' '.join(str(error).split())})") from error
    if matrix.dtype.kind not in "biuf" or matrix.ndim != 2:
        raise DataError(f"{path}: expected a matrix of numbers, found {matrix.dtype} of {matrix.ndim} dimensions")
    if not np.isfinite(matrix.data).all():
        raise DataError(f"{path}: the {what} contain nan or inf")
    n_entries = matrix.nnz
    matrix.sum_duplicates()
    if matrix.nnz != n_entries:
        raise DataError(f"{path}: a row has the same column twice")
    if labels:
        matrix = canonical_csr(matrix)
        return from_arrays(np.ones(matrix.nnz, np.int32), matrix.indices, matrix.indptr, matrix.shape)
    with np.errstate(over="ignore"):
        data = matrix.data.astype(np.float32)
    if not np.isfinite(data).all():
        raise DataError(f"{path}: a value is too large for float32")
    return from_arrays(data, matrix.indices, matrix.indptr, matrix.shape)


def _read_names(files: list[Path], allowed: Sequence[str]) -> list[str] | None:
    """The lines of the first file with an allowed name."""
    for file in files:
        if uncompressed_name(file) in allowed:
            return _read_lines(file)
    return None


def _label_matrix(where: Path, label_names: list[list[str]], label_ids: dict[str, int]) -> CsrArray:
    rows = []
    for point, names in enumerate(label_names, 1):
        if unknown := next((name for name in names if name not in label_ids), None):
            raise LabelError(
                f"{where}: label {unknown!r} of point {point} is not among the {len(label_ids)} in labels.txt"
            )
        rows.append(sorted({label_ids[name] for name in names}))
    return from_label_ids(rows, len(label_ids))
