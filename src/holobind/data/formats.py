"""Load datasets from the formats in which practitioners keep them: files, pairs of files, and directories.

A directory is a dataset. `train` or `trn`, `test` or `tst` in the names of its files identify the splits:

    xml       train.txt test.txt                              XML-Repository text with its header
    svmlight  train.svm test.svm                              the same lines; the header is a comment
    npz       X.trn.npz Y.trn.npz X.tst.npz Y.tst.npz         scipy matrices
    text      train_texts.txt train_labels.txt, and test_...  one document per line; label names, tabs or spaces between
    tsv       train.tsv test.tsv                              a document, then its labels, separated by tabs
    jsonl     train.jsonl test.jsonl                          {"text": "...", "labels": ["...", "..."]}; any field names
    csv       train.csv test.csv                              a header, then rows
    parquet   train.parquet test.parquet                      columns
    fasttext  train.txt test.txt                              words, and labels as __label__name
    annif     train.tsv test.tsv                              a document, then a tab and the URIs of its subjects

Also a folder of `Dataset.save_to_disk` (Hugging Face), and a folder of texts with their subjects (Annif: a.txt, a.tsv).
The content tells the format (`tables`), unless the option `format` does.

`labels.txt` and `features.txt` hold the names of labels and features, one per line. All files but npz may be compressed
(.gz, .xz, .bz2).
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holobind._types import CsrArray, ProgressCallback
from holobind.data import sparse_text
from holobind.data.cache import cache_dir
from holobind.data.csr import from_label_ids, widen
from holobind.data.dataset import Dataset, Split
from holobind.data.files import uncompressed_name
from holobind.data.npz import read_npz
from holobind.data.table_cache import StoredRows, store_lines, store_table, store_texts_and_labels
from holobind.data.tables import TABLE_FORMATS, Layout, TableOptions, find_format, read_table
from holobind.data.tables.columnar import hugging_face_splits
from holobind.data.tables.vocabulary import VOCABULARY_FILES, named_labels, read_vocabulary
from holobind.data.text_files import read_label_names, read_lines
from holobind.data.tfidf import Tfidf
from holobind.errors import DataError, LabelError, OptionError

FORMATS = ("xml", "svmlight", "npz", "text", "tsv", "jsonl")
READ_FORMATS = tuple(dict.fromkeys((*FORMATS, *TABLE_FORMATS)))  # a table of any format is read, but not written
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
    (r".*\.(csv|parquet|arrow|feather|fasttext|ft)", "table"),
    (r".*\.(txt|svm|svmlight|libsvm|dat)", "sparse"),
)
LABELS_OF_ROLE = {"X": (r"(^|[._-])[xX]([._-])", r"\1Y\2"), "texts": (r"(raw_)?texts?(?=\.)", "labels")}
SPLIT_FILE_ENDINGS = {"data": "_data.txt", "train": "_trsplit.txt", "test": "_tstsplit.txt"}
SPLIT_PATTERNS = {"train": r"(^|[._-])(train|trn)([._-]|$)", "test": r"(^|[._-])(test|tst)([._-]|$)"}


@dataclass(frozen=True)
class _RawSplit:
    """One split as it was read. `_assemble` computes what is missing when both splits are known.

    fixed_shape   whether the file determines the number of features and labels
    label_names   the names of the labels of each point, where labels are names
    stored        texts and label names that lie in files, instead of `label_names`
    layout        how a table was read; `description` says it in one line
    """

    X: CsrArray | None = None
    Y: CsrArray | None = None
    fixed_shape: bool = True
    texts: Sequence[str] | None = None
    label_names: list[list[str]] | None = None
    layout: Layout | None = None
    description: str = ""
    stored: StoredRows | None = None

    @classmethod
    def of(cls, stored: StoredRows) -> "_RawSplit":
        return cls(texts=stored.texts, layout=stored.layout, description=stored.description, stored=stored)

    @property
    def named(self) -> bool:
        """Whether labels are names."""
        return self.label_names is not None or self.stored is not None

    def distinct_names(self) -> set[str]:
        if self.stored is not None:
            return set(self.stored.label_names)
        return {name for names in self.label_names or () for name in names}

    def label_matrix(self, where: Path, ids: dict[str, int]) -> CsrArray:
        if self.stored is not None:
            return self.stored.label_matrix(where, ids)
        return _label_matrix(where, self.label_names or [], ids)


def load(
    path: str | Path,
    test: str | Path | None = None,
    *,
    format: str | None = None,  # noqa: A002 the name of the option
    text_field: str | Sequence[str] | None = None,
    label_field: str | None = None,
    label_separator: str | None = None,
    id_field: str | None = None,
    label_names: str | Path | None = None,
    preferred_text_field: Any = None,
    one_based: bool = False,
    cache: bool = True,
    memory_map: bool = False,
    texts: bool = True,
    max_uncompressed: int | None = None,
    on_progress: ProgressCallback | None = None,
) -> Dataset:
    """Load a dataset: a directory with a training and a test split, a file (and a second file as the test split), or
    the name of a fetched dataset.

    The names and the content of the files identify the format; `holobind.data.formats` lists the formats. If there are
    only texts, X is their tf-idf, fitted on the training split. Parsed sparse text is kept in a binary cache, unless
    `cache` is false.

        dataset = load("bibtex")
        dataset.train.X, dataset.train.Y, dataset.test.X, dataset.label_names
        load("books.csv", text_field="title^2,abstract", label_field="tags", label_separator="|")

    format        one of `READ_FORMATS`, instead of the one that the content shows
    text_field    fields of a table that make up the text, in order; ^2 repeats a field, so that it weighs more.
                  Numbers from 1 are columns of a file without a header
    label_field, id_field   the fields of labels and of ids
    label_separator   what stands between labels in one field; " " for white space, "none" for one label a field
    label_names   a vocabulary file with the name of each label: lines <uri> TAB name, or CSV with uri and label_en
    preferred_text_field   text fields as `Dataset.layout` has them, which are taken where the table has all of them
    one_based     the ids of features and of labels in sparse text start at 1
    memory_map    for data larger than memory: files are parsed into the cache in blocks; matrices and texts stay
                  there, read-only, and the operating system loads the pages that are used. Features of texts go to a
                  temporary file. Matrices in .npz files are read as a whole
    texts         read the texts of data that has features as well
    max_uncompressed   bytes to which a compressed file may expand; by default 100 times its size, and at least 64 MB.
                  It is also the number of features and of labels that a smaller file may have
    on_progress   called with a description of the current step and the fraction of it that is done
    """
    where = _locate(path)
    if memory_map and not cache:
        raise OptionError("memory_map maps the cache's files, so it needs cache=True")
    if format not in (None, *READ_FORMATS):
        raise OptionError(f"format {format!r:.40} is unknown; choose one of {', '.join(READ_FORMATS)}")
    table = TableOptions.of(
        format=format,
        text_field=text_field,
        label_field=label_field,
        label_separator=label_separator,
        id_field=id_field,
        preferred=preferred_text_field,
    )
    loader = _Loader(one_based, cache, memory_map, max_uncompressed, on_progress, table, texts)
    with _read_errors(where):
        vocabulary = None if label_names is None else read_vocabulary(Path(label_names), max_uncompressed)
        if not where.is_dir():
            train = loader.read_file(where)
            found = {"train": train}
            if test is not None:
                found["test"] = loader.read_file(Path(test), train.layout)
            return _assemble(where, found, None, None, vocabulary)
        if test is not None:
            raise OptionError(f"{where} is a directory with its own test split; give two files, or the directory alone")
        return loader.load_directory(where, vocabulary)


def training_table(path: str | Path) -> Path:
    """The table with the training rows, of a path that `load` takes."""
    where = _locate(path)
    with _read_errors(where):
        if not _exists(where):
            raise DataError(f"{where}: no such file or directory")
        if not where.is_dir() or find_format(where) is not None:
            return where
        for file in sorted(where.iterdir()):
            if _role(file) in ("jsonl", "tsv", "table") and re.search(SPLIT_PATTERNS["train"], uncompressed_name(file)):
                return file
        folder = (hugging_face_splits(where) or {}).get("train", where / "train")
        if folder.is_dir() and find_format(folder) is not None:
            return folder
    raise DataError(f"{where}: there is no table of training rows, which would have fields")


def input_files(path: str | Path, test: str | Path | None = None) -> list[Path]:
    """The files that `load` would read, which no output may replace."""
    where = _locate(path)
    with _read_errors(where):
        if where.is_dir():
            named = [file for file in where.iterdir() if _is_input(file)]
            return named or [file for pattern in ("*", "*/*") for file in where.glob(pattern) if file.is_file()]
    files = [where] if test is None else [where, Path(test)]
    return [*files, *map(_labels_of, files)]


@contextmanager
def _read_errors(where: Path) -> Iterator[None]:
    """Turn an `OSError`, such as of a folder that may not be read, into a `DataError` that names the file."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{error.filename or where}: {error.strerror or error}") from error


def _locate(path: str | Path) -> Path:
    """The path of a dataset, which may be given by the name of a fetched one."""
    where = Path(path)
    if where.name != str(path) or _exists(where):
        return where
    fetched = cache_dir() / "datasets" / where.name.lower()
    return fetched if _exists(fetched) else where


def _is_input(file: Path) -> bool:
    """Whether a file of a directory belongs to a dataset, by its name."""
    name = uncompressed_name(file)
    return (
        name in LABEL_NAME_FILES + FEATURE_NAME_FILES
        or name.endswith(tuple(SPLIT_FILE_ENDINGS.values()))
        or (_role(file) is not None and any(re.search(pattern, name) for pattern in SPLIT_PATTERNS.values()))
    )


def _labels_of(path: Path) -> Path:
    """The file with the labels of a file of features or of texts; any other file has them itself."""
    pattern, name = LABELS_OF_ROLE.get(_role(path) or "", (r"$^", ""))
    return path.with_name(re.sub(pattern, name, path.name))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # in a folder that may not be read, or a name that is too long
        return False


def _role(path: Path) -> str | None:
    return next((role for pattern, role in FILE_ROLES if re.fullmatch(pattern, uncompressed_name(path))), None)


@dataclass(frozen=True)
class _Loader:
    """Reads files with the options of `load`."""

    one_based: bool
    cache: bool
    memory_map: bool
    max_uncompressed: int | None
    on_progress: ProgressCallback | None
    table: TableOptions
    texts: bool = True

    def read_sparse(self, path: Path) -> _RawSplit:
        split, has_header = sparse_text.read(
            path,
            one_based=self.one_based,
            cache=self.cache,
            memory_map=self.memory_map,
            max_uncompressed=self.max_uncompressed,
            on_progress=self.on_progress,
        )
        return _RawSplit(split.X, split.Y, has_header)

    def read_file(self, path: Path, like: Layout | None = None) -> _RawSplit:
        """Read one file, or the pair of files to which it belongs."""
        if not _exists(path):
            raise DataError(f"{path}: no such file or directory")
        match {"npz": "X", "text": "texts"}.get(self.table.format or "", _role(path)):
            case "X" if self.table.format in (None, "npz"):
                return self.read_matrices(path, _labels_of(path))
            case "texts" if self.table.format in (None, "text"):
                return self.read_texts(path, _labels_of(path))
            case _:
                return self.read_table_or_sparse(path, like)

    def read_table_or_sparse(self, path: Path, like: Layout | None = None, labels_known: bool = False) -> _RawSplit:
        """Read a file of texts and labels, or of sparse features, as its content or `format` says."""
        chosen = self.table.format
        if chosen is None:
            chosen = find_format(path, self.max_uncompressed)
        if chosen in TABLE_FORMATS and self.memory_map:
            return _RawSplit.of(
                store_table(path, chosen, self.table, self.max_uncompressed, like=like, labels_known=labels_known)
            )
        if chosen in TABLE_FORMATS:
            table = read_table(path, chosen, self.table, self.max_uncompressed, like=like, labels_known=labels_known)
            return _RawSplit(
                texts=table.texts,
                label_names=table.label_names,
                layout=table.layout,
                description=table.description,
            )
        if self.table.names or self.table.separator:
            raise OptionError(
                f"{path} is no table with fields; if it is one, pass --format with one of {', '.join(TABLE_FORMATS)}"
            )
        return self.read_sparse(path)

    def read_matrices(self, X: Path, Y: Path) -> _RawSplit:
        return _RawSplit(read_npz(X, False, self.max_uncompressed), read_npz(Y, True, self.max_uncompressed))

    def read_texts(self, texts: Path, labels: Path) -> _RawSplit:
        if self.memory_map:
            return _RawSplit.of(store_texts_and_labels(texts, labels, self.max_uncompressed))
        return _RawSplit(texts=self.read_lines(texts), label_names=read_label_names(labels, self.max_uncompressed))

    def read_lines(self, path: Path) -> list[str]:
        return read_lines(path, self.max_uncompressed)

    def read_names(self, files: list[Path], allowed: Sequence[str]) -> list[str] | None:
        """The lines of the first file with an allowed name."""
        return next((self.read_lines(file) for file in files if uncompressed_name(file) in allowed), None)

    def load_directory(self, folder: Path, vocabulary: dict[str, str] | None) -> Dataset:
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
        label_names = self.read_names(files, LABEL_NAME_FILES)
        feature_names = self.read_names(files, FEATURE_NAME_FILES)
        found: dict[str, _RawSplit] = {}
        for name, by_role in roles.items():
            like = found["train"].layout if "train" in found else None
            if (split := self.read_split(by_role, like, label_names is not None)) is not None:
                found[name] = split
        found = found or self.read_split_files(files) or self.read_folders(folder)
        if "train" not in found:
            raise DataError(
                f"{folder}: there is no training split; expected train.txt, X.trn.npz and Y.trn.npz, train.jsonl, "
                f"train.tsv, train.csv, train.parquet, or train_texts.txt and train_labels.txt"
            )
        vocabulary_files = [file for file in files if uncompressed_name(file) in VOCABULARY_FILES]
        if vocabulary is None and vocabulary_files:
            vocabulary = read_vocabulary(vocabulary_files[0], self.max_uncompressed)
        return _assemble(folder, found, label_names, feature_names, vocabulary)

    def read_folders(self, folder: Path) -> dict[str, _RawSplit]:
        """A folder of a Hugging Face dataset or of texts with their subjects, or `train` and `test` folders in it."""
        folders = {"train": folder}
        if find_format(folder) is None:
            folders = hugging_face_splits(folder) or {name: folder / name for name in ("train", "test")}
        found: dict[str, _RawSplit] = {}
        for name in ("train", "test"):
            path = folders.get(name)
            if path is not None and path.is_dir() and find_format(path) is not None:
                like = found["train"].layout if "train" in found else None
                found[name] = self.read_table_or_sparse(path, like)
        return found

    def read_split(self, by_role: dict[str, Path], like: Layout | None, labels_known: bool) -> _RawSplit | None:
        """Read the files of one split; None if they do not make a split."""
        table = by_role.get("jsonl") or by_role.get("tsv") or by_role.get("table")
        if "sparse" in by_role:
            found = self.read_table_or_sparse(by_role["sparse"], like, labels_known)
            if found.layout is not None:
                return found
        elif "X" in by_role and "Y" in by_role:
            found = self.read_matrices(by_role["X"], by_role["Y"])
        elif table is not None:
            return self.read_table_or_sparse(table, like, labels_known)
        elif "texts" in by_role and "labels" in by_role:
            return self.read_texts(by_role["texts"], by_role["labels"])
        else:
            return None
        if not self.texts or "texts" not in by_role:
            return found
        path = by_role["texts"]
        texts = store_lines(path, self.max_uncompressed) if self.memory_map else self.read_lines(path)
        return replace(found, texts=texts)

    def read_split_files(self, files: list[Path]) -> dict[str, _RawSplit]:
        """The repository's small datasets: one file of all points, and for each split a file of point numbers from 1.

        The columns of a split file are alternative splits; the first column is used.
        """
        by_role = {
            role: file
            for file in files
            for role, end in SPLIT_FILE_ENDINGS.items()
            if uncompressed_name(file).endswith(end)
        }
        if len(by_role) < len(SPLIT_FILE_ENDINGS):
            return {}
        found = self.read_sparse(by_role["data"])
        assert found.X is not None and found.Y is not None
        splits = {}
        for name in ("train", "test"):
            rows = []
            for line, text in enumerate(self.read_lines(by_role[name]), 1):
                first = text.split()[0] if text.split() else ""
                digits = first.lstrip("0")  # int() refuses numbers of more than 4,300 digits
                if not first.isdecimal() or len(digits) > 10 or not 1 <= int(digits or 0) <= found.X.shape[0]:
                    raise DataError(
                        f"{by_role[name]}:{line}: {first[:40]!r} is not the number of a point (1 to {found.X.shape[0]})"
                    )
                rows.append(int(digits) - 1)
            splits[name] = _RawSplit(found.X[rows], found.Y[rows])
        return splits


def _assemble(
    where: Path,
    found: dict[str, _RawSplit],
    label_names: list[str] | None,
    feature_names: list[str] | None,
    vocabulary: dict[str, str] | None = None,
) -> Dataset:
    """Turn label names into label ids and texts into features, and give all splits the same features and labels."""
    tfidf = None
    if any(raw.named for raw in found.values()):
        if not found["train"].texts:
            raise DataError(f"{where}: there are no training points")
        if label_names is None:
            label_names = sorted(set().union(*(raw.distinct_names() for raw in found.values())))
        label_ids = {name: i for i, name in enumerate(label_names)}
        for split_name, raw in found.items():
            found[split_name] = replace(raw, Y=raw.label_matrix(where, label_ids))
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
    if vocabulary is not None and label_names is not None:
        label_names = named_labels(label_names, vocabulary)
    train, test = splits["train"], splits.get("test")
    description = found["train"].description
    if description and test is not None:
        description += f"; {len(test):,} test rows"
    try:
        return Dataset(
            train,
            test,
            label_names,
            feature_names,
            where.resolve().name,
            tfidf,
            layout=found["train"].layout,
            description=description,
        )
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def _label_matrix(where: Path, label_names: list[list[str]], label_ids: dict[str, int]) -> CsrArray:
    rows = []
    for point, names in enumerate(label_names, 1):
        if unknown := next((name for name in names if name not in label_ids), None):
            raise LabelError(
                f"{where}: label {unknown!r} of point {point} is not among the {len(label_ids)} in labels.txt"
            )
        rows.append(sorted({label_ids[name] for name in names}))
    return from_label_ids(rows, len(label_ids))
