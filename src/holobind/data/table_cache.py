"""Texts and labels parsed into the cache as they are read, for data that is larger than memory.

A reader gives a row at a time. Texts go to one file, ids of labels to another; in memory are one block of rows and the
names of the labels. The same files, mapped, are the result. Label ids count from 0 in the order in which names occur.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holobind._types import CsrArray
from holobind.data import cache as parsed_cache
from holobind.data._array_builder import ArrayBuilder
from holobind.data.csr import check_ids, from_arrays, release_array
from holobind.data.files import read_chunks
from holobind.data.mapped_texts import MappedTexts, TextBuilder
from holobind.data.tables import Layout, TableOptions, TableRows
from holobind.data.tables.layout import Fields
from holobind.data.tables.lines import Lines
from holobind.errors import DataError, LabelError

BLOCK_ROWS = 1 << 16
VERSION = 1  # of what is stored: a change makes older files stale

Row = tuple[str, Sequence[str]]


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Texts and labels of rows, in files.

    label_ids, offsets   ids of the labels of row i: label_ids[offsets[i] : offsets[i + 1]], as they came
    label_names          of these ids
    layout               how a table was read; `description` says it in one line
    """

    texts: MappedTexts
    label_ids: NDArray[np.int32]
    offsets: NDArray[Any]
    label_names: list[str]
    layout: Layout | None = None
    description: str = ""

    def label_matrix(self, where: object, ids: dict[str, int]) -> CsrArray:
        """The label sets as a matrix with the ids of a list of names, in a file.  Shapes: -> (n, L)"""
        known = np.array([ids.get(name, -1) for name in self.label_names], np.int64)
        n, n_labels = len(self.texts), len(ids)
        found, counts = ArrayBuilder.in_file(np.int32), ArrayBuilder.in_file(np.int32)
        for first in range(0, n, BLOCK_ROWS):
            last = min(first + BLOCK_ROWS, n)
            start, end = int(self.offsets[first]), int(self.offsets[last])
            rows = np.repeat(np.arange(last - first), np.diff(self.offsets[first : last + 1]))
            labels = known[self.label_ids[start:end]]
            if len(labels) and labels.min() < 0:
                at = int(np.flatnonzero(labels < 0)[0])
                raise LabelError(
                    f"{where}: label {self.label_names[self.label_ids[start + at]]!r} of point {first + rows[at] + 1} "
                    f"is not among the {n_labels} in labels.txt"
                )
            rows, labels = np.divmod(np.unique(rows * n_labels + labels), max(n_labels, 1))
            found.append(labels)
            counts.append(np.bincount(rows, minlength=last - first))
            release_array(self.label_ids, start, end)
            release_array(self.offsets, first, last)
        labels = found.build()
        ones = np.broadcast_to(np.int32(1), len(labels))  # takes no memory
        return from_arrays(ones, labels, counts.build_offsets(), (n, n_labels))


def store_rows(path: Path, options: dict[str, Any], open_rows: Callable[[dict[str, Any]], Iterable[Row]]) -> StoredRows:
    """The rows of a file, from the cache or parsed into it.

    options     that decide how the file is read: they are part of the cache's key
    open_rows   gives the rows, and writes what there is to say about them, as JSON values, into its argument
    """
    cached = parsed_cache.cache_path(path, texts=VERSION, **options)
    key: dict[str, Any] | None = None
    if path.is_file():
        try:
            key = parsed_cache.fingerprint(path)
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from error
        if (found := _read_cached(cached, key)) is not None:
            return found
    spill_dir = parsed_cache.writable_dir()
    texts, names, about = TextBuilder(spill_dir), dict[str, int](), dict[str, Any]()
    labels, counts = ArrayBuilder(np.int32, spill_dir), ArrayBuilder(np.int32, spill_dir)
    for block in _blocks(open_rows(about)):
        for text, _ in block:
            texts.append(text)
        of_rows = [[names.setdefault(name, len(names)) for name in row] for _, row in block]
        labels.append(np.fromiter((i for row in of_rows for i in row), np.int32))
        counts.append(np.fromiter(map(len, of_rows), np.int32, len(of_rows)))
    all_names = TextBuilder(None)
    for name in names:
        all_names.append(name)
    arrays = dict(zip(("texts", "text_offsets"), texts.build(), strict=True))
    arrays |= {"labels": labels.build(), "label_offsets": counts.build_offsets()}
    arrays |= dict(zip(("names", "name_offsets"), all_names.build(), strict=True))
    if key is not None and parsed_cache.fingerprint(path) == key:
        parsed_cache.write(cached, key, {"about": about}, arrays)
        if (found := _read_cached(cached, key)) is not None:
            return found
    return _stored(arrays, about)


def store_table(
    path: Path,
    format: str,  # noqa: A002
    options: TableOptions,
    max_uncompressed: int | None,
    like: Layout | None,
    labels_known: bool,
) -> StoredRows:
    """`tables.read_table` into the cache."""

    def open_rows(about: dict[str, Any]) -> Iterator[Row]:
        rows = TableRows(path, format, options, max_uncompressed, like=like, labels_known=labels_known)
        yield from rows
        about |= {"layout": asdict(rows.layout), "description": rows.describe()}

    chosen = [format, asdict(options), None if like is None else asdict(like), labels_known, max_uncompressed]
    return store_rows(path, {"table": chosen}, open_rows)


def store_lines(path: Path, max_uncompressed: int | None) -> MappedTexts:
    """`text_files.read_lines` into the cache."""
    rows = ((line, ()) for _, line in Lines(read_chunks(path, max_uncompressed), str(path)))
    return store_rows(path, {"lines": max_uncompressed}, lambda _: rows).texts


def store_texts_and_labels(texts: Path, labels: Path, max_uncompressed: int | None) -> StoredRows:
    """`text_files.read_lines` and `text_files.read_label_names` into the cache."""

    def open_rows(_: dict[str, Any]) -> Iterator[Row]:
        separator = "\t" if any(b"\t" in chunk for chunk in read_chunks(labels, max_uncompressed)) else " "
        for _number, line in Lines(read_chunks(labels, max_uncompressed), str(labels)):
            yield "", [name for name in line.split(separator) if name]

    lines = store_lines(texts, max_uncompressed)
    stored = store_rows(labels, {"label lines": max_uncompressed}, open_rows)
    if len(stored.texts) != len(lines):
        raise DataError(f"{texts} has {len(lines)} lines and {labels.name} has {len(stored.texts)}; a line is a point")
    return replace(stored, texts=lines)


def _blocks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in lists of bounded size: both of rows and of characters."""
    block: list[Row] = []
    size = 0
    for row in rows:
        block.append(row)
        size += len(row[0])
        if len(block) >= BLOCK_ROWS // 16 or size >= 1 << 22:
            yield block
            block, size = [], 0
    yield block


def _read_cached(cached: Path, key: dict[str, Any]) -> StoredRows | None:
    """What the cache has of a file; None if these are no texts with label sets, whoever wrote it."""
    found = parsed_cache.read(cached, key, memory_map=True)
    if found is None:
        return None
    try:
        metadata, arrays = found
        return _stored(arrays, metadata["about"])
    except (AttributeError, KeyError, TypeError, ValueError):  # of which a DataError is one
        return None


def _stored(arrays: dict[str, NDArray[Any]], about: dict[str, Any]) -> StoredRows:
    """The rows of these arrays, which may come from a file: every offset and id is checked before it is used."""
    texts = MappedTexts(arrays["texts"], arrays["text_offsets"])
    names = list(MappedTexts(arrays["names"], arrays["name_offsets"]))
    labels, offsets = arrays["labels"], arrays["label_offsets"]
    if labels.dtype != np.int32 or offsets.dtype.kind != "i":
        raise DataError(f"ids of labels are {labels.dtype}, and their offsets {offsets.dtype}")
    if len(set(names)) != len(names) or len(offsets) != len(texts) + 1:
        raise DataError("label names repeat, or label sets are not those of the texts")
    ones = np.broadcast_to(np.int32(1), len(labels))
    check_ids(from_arrays(ones, labels, offsets, (len(texts), len(names)), canonical=False), "labels")
    layout = None if about.get("layout") is None else _layout_of(about["layout"])
    return StoredRows(texts, labels, offsets, names, layout, str(about.get("description", "")))


def _layout_of(value: dict[str, Any]) -> Layout:
    """The inverse of `dataclasses.asdict`, of JSON values."""
    fields = value["fields"]
    text = tuple((str(name), int(weight)) for name, weight in fields["text"])
    return Layout(**(value | {"fields": Fields(text, fields["label"], fields["id"])}))
