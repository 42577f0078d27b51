"""Write datasets in every format that `formats` reads, and convert between formats. Writing is atomic."""

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scipy import sparse

from holobind._files import atomic_directory, atomic_write, check_outputs
from holobind._types import ProgressCallback
from holobind.data import sparse_text
from holobind.data.dataset import Dataset, Split
from holobind.data.files import BOM, OPEN_COMPRESSED, uncompressed_name
from holobind.data.formats import FORMATS, input_files, load
from holobind.errors import DataError, OptionError

SUFFIXES = {"xml": ".txt", "svmlight": ".svm", "npz": ".npz", "text": ".txt", "tsv": ".tsv", "jsonl": ".jsonl"}
FORMAT_OF_SUFFIX = {".jsonl": "jsonl", ".tsv": "tsv", ".txt": "xml", ".svm": "svmlight", ".svmlight": "svmlight"}


def write(dataset: Dataset, path: str | Path, to: str | None = None, *, compression: str = "") -> None:
    """Write a dataset to a new directory, or its only split to a file whose suffix determines the format.

    to            xml (the default), svmlight, npz, text, tsv or jsonl
    compression   "", "gz", "xz" or "bz2"

    After an error nothing is left behind. Reading the dataset back gives the same matrices, texts and names; the text
    formats (text, tsv, jsonl) do not store X, which becomes the tf-idf of the texts.
    """
    target = Path(path)
    test = None if dataset.test is None else dataset.test.checked()
    dataset = replace(dataset, train=dataset.train.checked(), test=test)
    if to is not None and to not in FORMATS:
        raise OptionError(f"format {to!r} is unknown; choose one of {', '.join(FORMATS)}")
    if compression and f".{compression}" not in OPEN_COMPRESSED:
        raise OptionError(f"compression {compression!r} is unknown; choose one of gz, xz, bz2")
    if single_file_format := FORMAT_OF_SUFFIX.get(Path(uncompressed_name(target)).suffix):
        if dataset.test is not None:
            raise OptionError(f"{target} is one file, and this dataset has a test split; give the name of a directory")
        if to not in (None, single_file_format):
            raise OptionError(
                f"{target} has the suffix of {single_file_format}, not of {to}; give the name of a directory"
            )
    elif target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise OptionError(f"{target} already exists; choose another name, or remove it first")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if single_file_format:
            _write_split(dataset, dataset.train, target, single_file_format)
            return
        with atomic_directory(target) as folder:
            _write_directory(dataset, folder, to or "xml", f".{compression}" if compression else "")
    except OSError as error:
        raise DataError(f"{target}: {error.strerror or error}") from error


def convert(
    source: str | Path,
    target: str | Path,
    to: str | None = None,
    *,
    compression: str = "",
    format: str | None = None,  # noqa: A002 the name of the option
    text_field: str | Sequence[str] | None = None,
    label_field: str | None = None,
    label_separator: str | None = None,
    label_names: str | Path | None = None,
    one_based: bool = False,
    max_uncompressed: int | None = None,
    on_progress: ProgressCallback | None = None,
) -> Dataset:
    """Load `source`, write it to `target` in another format, and return the dataset. No file of `source` is replaced.

    The options are those of `load`.
    """
    if Path(target).exists() and not Path(target).is_dir():
        check_outputs({"the target": Path(target)}, input_files(source))
    dataset = load(
        source,
        format=format,
        text_field=text_field,
        label_field=label_field,
        label_separator=label_separator,
        label_names=label_names,
        one_based=one_based,
        max_uncompressed=max_uncompressed,
        on_progress=on_progress,
    )
    if on_progress:
        on_progress(f"writing {target}", 0.0)
    write(dataset, target, to, compression=compression)
    return dataset


def _write_directory(dataset: Dataset, folder: Path, to: str, compression: str) -> None:
    for name, split in dataset.splits.items():
        if to == "npz":
            short = {"train": "trn", "test": "tst"}[name]
            sparse.save_npz(folder / f"X.{short}.npz", split.X)
            sparse.save_npz(folder / f"Y.{short}.npz", split.Y)
        elif to == "text":
            label_names = _label_names(dataset)
            _write_lines(folder / f"{name}_texts.txt{compression}", _single_line_texts(split, "\n\r"))
            # A tab in the file tells the reader that tabs separate the names, so that names may contain spaces.
            end = "\t" if any(" " in label for label in label_names) else ""
            rows = (("\t" if end else " ").join(row) + end for row in _names_by_point(split, label_names))
            _write_lines(folder / f"{name}_labels.txt{compression}", rows)
        else:
            _write_split(dataset, split, folder / f"{name}{SUFFIXES[to]}{compression}", to)
        if to in ("xml", "svmlight", "npz") and split.texts is not None:
            _write_lines(folder / f"{name}_texts.txt{compression}", _single_line_texts(split, "\n\r"))
    if dataset.label_names is not None or to in ("text", "tsv", "jsonl"):
        _write_lines(folder / f"labels.txt{compression}", _label_names(dataset))
    if dataset.feature_names is not None and to in ("xml", "svmlight", "npz"):
        _write_lines(folder / f"features.txt{compression}", dataset.feature_names)


def _write_split(dataset: Dataset, split: Split, path: Path, to: str) -> None:
    if to in ("xml", "svmlight"):
        sparse_text.write(path, split, comment_header=to == "svmlight")
        return
    rows: Iterable[str]
    label_names = _names_by_point(split, _label_names(dataset))
    if to == "tsv":
        texts = _single_line_texts(split, "\n\r\t")
        rows = ("\t".join([text, *names]) for text, names in zip(texts, label_names, strict=True))
    else:
        records = zip(_texts(split), label_names, strict=True)
        rows = (json.dumps({"text": text, "labels": names}, ensure_ascii=False) for text, names in records)
    _write_lines(path, rows)


def _label_names(dataset: Dataset) -> list[str]:
    return dataset.label_names if dataset.label_names is not None else list(map(str, range(dataset.n_labels)))


def _texts(split: Split) -> Sequence[str]:
    if split.texts is None:
        raise DataError("this dataset has no texts, only features; write it as xml, svmlight or npz")
    return split.texts


def _single_line_texts(split: Split, forbidden: str) -> Sequence[str]:
    texts = _texts(split)
    for number, text in enumerate(texts, 1):
        if any(c in text for c in forbidden):
            raise DataError(
                f"text {number} contains a line break or a tab, which this format cannot store; write it as jsonl"
            )
    return texts


def _names_by_point(split: Split, label_names: list[str]) -> Iterable[list[str]]:
    """The label names of each point."""
    for name in label_names:
        if not name or any(c in name for c in "\t\n\r"):
            raise DataError(f"the label name {name!r} is empty or contains a tab or line break; rename it")
    ids, ends = split.Y.indices.tolist(), split.Y.indptr.tolist()
    return [[label_names[i] for i in ids[first:last]] for first, last in itertools.pairwise(ends)]


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    compress: Callable[..., Any] | None = OPEN_COMPRESSED.get(path.suffix.lower())
    texts = list(lines)
    if broken := next((line for line in texts if "\n" in line or line.endswith("\r")), None):
        raise DataError(f"{path.name}: {broken[:40]!r} contains a line break, which this file cannot store")
    # A reader removes one byte order mark from the start of a file. If the text begins with one, a second is written.
    mark = BOM if texts and texts[0].startswith(BOM.decode()) else b""
    content = mark + "".join(line + "\n" for line in texts).encode()
    with atomic_write(path) as raw:
        if compress:
            with compress(raw, "wb") as file:
                file.write(content)
        else:
            raw.write(content)
