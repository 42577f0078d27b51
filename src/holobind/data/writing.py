"""Datasets written in every format that `formats` reads, and converted: all of it or nothing."""

import itertools
import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from scipy import sparse

from holobind._types import ProgressCallback
from holobind.data import sparse_text
from holobind.data.cache import replacing
from holobind.data.dataset import Dataset, Split
from holobind.data.formats import FORMATS, bare, load
from holobind.data.sparse_text import BOM, PACKED
from holobind.errors import DataError, OptionError


def write(dataset: Dataset, path: str | Path, to: str | None = None, *, packing: str = "") -> None:
    """Write a dataset into a new directory, or its only part into a file whose ending says the format.

    to        xml (the default), svmlight, npz, text, tsv or jsonl
    packing   "", "gz", "xz" or "bz2"

    Everything is written, or nothing. What is read back is identical; for the formats of texts, X is their tf-idf.
    """
    target = Path(path)
    if to is not None and to not in FORMATS:
        raise OptionError(f"format {to!r} is unknown; choose one of {', '.join(FORMATS)}")
    if packing and f".{packing}" not in PACKED:
        raise OptionError(f"packing {packing!r} is unknown; choose one of gz, xz, bz2")
    if single := _single_format(target):
        if dataset.test is not None:
            raise OptionError(f"{target} is one file, and this dataset has a test part; give the name of a directory")
        if to not in (None, single):
            raise OptionError(f"{target} ends like {single}, not like {to}; give the name of a directory")
    elif target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise OptionError(f"{target} already exists; choose another place, or remove it first")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if single:
            _write_part(dataset, dataset.train, target, single)
            return
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
            fresh = Path(temporary) / "dataset"
            fresh.mkdir()
            _write_directory(dataset, fresh, to or "xml", f".{packing}" if packing else "")
            if target.exists():
                target.rmdir()
            fresh.rename(target)
    except OSError as error:
        raise DataError(f"{target}: {error.strerror or error}") from error


def convert(
    source: str | Path,
    target: str | Path,
    to: str | None = None,
    *,
    packing: str = "",
    one_based: bool = False,
    progress: ProgressCallback | None = None,
) -> Dataset:
    """Read `source` in whatever format it is and write it to `target` in another; gives the dataset."""
    dataset = load(source, one_based=one_based, progress=progress)
    if progress:
        progress(f"writing {target}", 0.0)
    write(dataset, target, to, packing=packing)
    return dataset


def _single_format(target: Path) -> str | None:
    """The format of a single file by its name, or None for the name of a directory."""
    ending = Path(bare(target)).suffix
    return {".jsonl": "jsonl", ".tsv": "tsv", ".txt": "xml", ".svm": "svmlight", ".svmlight": "svmlight"}.get(ending)


def _write_directory(dataset: Dataset, place: Path, to: str, packed: str) -> None:
    ending = {"xml": "txt", "svmlight": "svm", "npz": "npz", "text": "txt", "tsv": "tsv", "jsonl": "jsonl"}[to]
    for side, part in dataset.splits.items():
        short = {"train": "trn", "test": "tst"}[side]
        if to == "npz":
            sparse.save_npz(place / f"X.{short}.npz", part.X)
            sparse.save_npz(place / f"Y.{short}.npz", part.Y)
        elif to == "text":
            names = _label_names(dataset)
            _write_lines(place / f"{side}_texts.txt{packed}", _one_line(part, "\n\r"))
            # A tab says that tabs are between the names, so that names may hold spaces.
            end = "\t" if any(" " in name for name in names) else ""
            rows = (("\t" if end else " ").join(row) + end for row in _named(part, names))
            _write_lines(place / f"{side}_labels.txt{packed}", rows)
        else:
            _write_part(dataset, part, place / f"{side}.{ending}{packed}", to)
        if to in ("xml", "svmlight", "npz") and part.texts is not None:
            _write_lines(place / f"{side}_texts.txt{packed}", _one_line(part, "\n\r"))
    if dataset.label_names is not None or to in ("text", "tsv", "jsonl"):
        _write_lines(place / f"labels.txt{packed}", _label_names(dataset))
    if dataset.feature_names is not None and to in ("xml", "svmlight", "npz"):
        _write_lines(place / f"features.txt{packed}", dataset.feature_names)


def _write_part(dataset: Dataset, part: Split, path: Path, to: str) -> None:
    if to in ("xml", "svmlight"):
        sparse_text.write(path, part, comment_header=to == "svmlight")
        return
    rows: Iterable[str]
    named = _named(part, _label_names(dataset))
    if to == "tsv":
        rows = ("\t".join([text, *names]) for text, names in zip(_one_line(part, "\n\r\t"), named, strict=True))
    else:
        records = zip(_texts(part), named, strict=True)
        rows = (json.dumps({"text": text, "labels": names}, ensure_ascii=False) for text, names in records)
    _write_lines(path, rows)


def _label_names(dataset: Dataset) -> list[str]:
    return dataset.label_names if dataset.label_names is not None else list(map(str, range(dataset.n_labels)))


def _texts(part: Split) -> list[str]:
    if part.texts is None:
        raise DataError("this dataset has no texts, only features; write it as xml, svmlight or npz")
    return part.texts


def _one_line(part: Split, forbidden: str) -> list[str]:
    texts = _texts(part)
    for number, text in enumerate(texts, 1):
        if any(c in text for c in forbidden):
            raise DataError(f"text {number} holds a line break or a tab, which this format cannot; write it as jsonl")
    return texts


def _named(part: Split, names: list[str]) -> Iterable[list[str]]:
    for name in names:
        if not name or any(c in name for c in "\t\n\r"):
            raise DataError(f"the label name {name!r} is empty or holds a tab or line break; rename it")
    ids, ends = part.Y.indices.tolist(), part.Y.indptr.tolist()
    return [[names[i] for i in ids[first:last]] for first, last in itertools.pairwise(ends)]


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    pack: Callable[..., Any] | None = PACKED.get(path.suffix.lower())
    texts = list(lines)
    if broken := next((line for line in texts if "\n" in line or line.endswith("\r")), None):
        raise DataError(f"{path.name}: {broken[:40]!r} holds a line break, which this file cannot")
    # A reader takes one mark of UTF-8 away from the beginning of a file; if there is one in the text, it stays.
    mark = BOM if texts and texts[0].startswith(BOM.decode()) else b""
    content = mark + "".join(line + "\n" for line in texts).encode()
    with replacing(path) as raw:
        if pack:
            with pack(raw, "wb") as file:
                file.write(content)
        else:
            raw.write(content)
