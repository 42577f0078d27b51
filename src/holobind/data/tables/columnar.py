"""Tables by columns: Parquet files, Arrow files and streams, and folders of Hugging Face datasets, through pyarrow.

These files are not trusted: only columns of texts, numbers and lists of these are read, every batch is validated before
it is used, and what a file expands to is bounded as for compressed text. pyarrow allocates what a file claims, so the
claims are checked first (`parquet_pages`, `arrow_messages`).
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from holobind.data.files import check_is_file, expansion_error, expansion_limit, row_limit
from holobind.data.tables.arrow_messages import check_messages
from holobind.data.tables.layout import Record
from holobind.data.tables.parquet_pages import check_pages, read_footer, thrift_limits
from holobind.data.tables.sources import NumberedRecords, Source
from holobind.errors import DataError

PARQUET_MAGIC, ARROW_FILE_MAGIC, ARROW_STREAM_MAGIC = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
BATCH_ROWS = 1024
READ_BYTES = 1 << 20  # of a column at a time: a row group may be as large as the file
MAX_STATE_BYTES = 1 << 24  # of the JSON of a Hugging Face dataset


def from_parquet(path: Path, max_uncompressed: int | None) -> Source:
    """The table of a Parquet file."""
    pa = _pyarrow(path)
    import pyarrow.parquet as pq

    check_is_file(path)
    limit = expansion_limit(path.stat().st_size, max_uncompressed)
    max_rows = row_limit(path.stat().st_size, max_uncompressed)
    with _errors(path, pa), pq.ParquetFile(path, **thrift_limits(path)) as file:
        metadata, schema = file.metadata, file.schema_arrow
        footer = read_footer(path)
        if footer.n_uncompressed > limit:
            raise expansion_error(path, limit)
        if max(metadata.num_rows, footer.n_rows) > max_rows:
            raise expansion_error(path, max_rows, "rows")
        if any(len(group) != metadata.num_columns for group in footer.groups):
            raise DataError(f"{path}: a damaged Parquet file: a row group without some columns")
        usable = _usable(pa, schema)
    leaves = [metadata.schema.column(i) for i in range(metadata.num_columns)]

    def records(wanted: Sequence[str]) -> NumberedRecords:
        _check_types(path, usable, wanted)
        read = {i: leaf for i, leaf in enumerate(leaves) if f"{leaf.path}.".startswith(tuple(f"{n}." for n in wanted))}
        with _errors(path, pa):
            # A text that a million rows repeat is one entry of a dictionary, and stays one in memory.
            shared = [leaves[i] for i in check_pages(path, footer, read, metadata.created_by or "", limit)]
            with pq.ParquetFile(
                path,
                read_dictionary=[leaf.path for leaf in shared if leaf.physical_type == "BYTE_ARRAY"],
                buffer_size=READ_BYTES,
                pre_buffer=False,
                **thrift_limits(path),
            ) as file:
                options = {"batch_size": BATCH_ROWS, "columns": list(wanted), "use_threads": False}
                # Each row group has a dictionary of its own; lists of entries of two of them cannot be in one batch.
                batches = (
                    _valid(batch)
                    for group in range(len(footer.groups))
                    for batch in file.iter_batches(row_groups=[group], **options)
                )
                yield from _numbered(pa, path, batches, wanted, limit, _class_names(schema))

    return Source(str(path), "Parquet", usable, records)


def from_arrow(paths: Sequence[Path], name: Path, max_uncompressed: int | None, kind: str = "Arrow") -> Source:
    """The table of Arrow files or streams, one after the other."""
    pa = _pyarrow(name)
    for path in paths:
        check_is_file(path)
    n_bytes = sum(path.stat().st_size for path in paths)
    limit, max_rows = expansion_limit(n_bytes, max_uncompressed), row_limit(n_bytes, max_uncompressed)
    n_left = limit
    for path in paths:
        n_left -= check_messages(path, n_left)
    with _errors(name, pa), _open_arrow(pa, paths[0]) as reader:
        schema = reader.schema
        usable = _usable(pa, schema)

    def batches(wanted: Sequence[str]) -> Iterator[Any]:
        n_rows = 0
        for path in paths:
            with _open_arrow(pa, path) as reader:
                if not reader.schema.equals(schema, check_metadata=False):
                    raise DataError(f"{path}: its columns are not those of {paths[0].name}")
                for batch in (
                    reader
                    if hasattr(reader, "read_next_batch")
                    else map(reader.get_batch, range(reader.num_record_batches))
                ):
                    n_rows += batch.num_rows
                    if n_rows > max_rows:
                        raise expansion_error(path, max_rows, "rows")
                    chosen = _valid(batch.select(list(wanted)))
                    for first in range(0, len(chosen), BATCH_ROWS):
                        yield chosen.slice(first, BATCH_ROWS)

    def records(wanted: Sequence[str]) -> NumberedRecords:
        _check_types(name, usable, wanted)
        with _errors(name, pa):
            yield from _numbered(pa, name, batches(wanted), wanted, limit, _class_names(schema))

    return Source(str(name), kind, usable, records)


def hugging_face_files(folder: Path) -> list[Path]:
    """The Arrow files of a folder that `Dataset.save_to_disk` wrote; none if it is no such folder."""
    state = _json(folder / "state.json")
    listed = state.get("_data_files") if isinstance(state, dict) else None
    names = [entry.get("filename") for entry in listed or () if isinstance(entry, dict)]
    valid = [name for name in names if isinstance(name, str) and name == Path(name).name and name != ".."]
    return [folder / name for name in valid] if len(valid) == len(names) else []


def hugging_face_splits(folder: Path) -> dict[str, Path]:
    """The folders of the splits that `DatasetDict.save_to_disk` wrote, by their names."""
    described = _json(folder / "dataset_dict.json")
    names = described.get("splits") if isinstance(described, dict) else None
    if not isinstance(names, list) or not all(isinstance(n, str) and n == Path(n).name and n != ".." for n in names):
        return {}
    return {name: folder / name for name in names}


def _json(path: Path) -> Any:
    try:
        if not path.is_file() or path.stat().st_size > MAX_STATE_BYTES:
            return None
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise DataError(
            f"{path}: Parquet and Arrow files need pyarrow; install it: pip install 'holobind[formats]'"
        ) from error
    return pa


@contextmanager
def _errors(path: Path, pa: Any) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except (pa.lib.ArrowException, OSError, ValueError, MemoryError, KeyError, TypeError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{path}: a damaged file, or none that pyarrow reads ({reason})") from error


@contextmanager
def _open_arrow(pa: Any, path: Path) -> Iterator[Any]:
    import pyarrow.ipc

    with pa.memory_map(str(path)) as mapped:
        is_file = mapped.read(len(ARROW_FILE_MAGIC)) == ARROW_FILE_MAGIC
        mapped.seek(0)
        options = pyarrow.ipc.IpcReadOptions(use_threads=False)
        with (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(mapped, options=options) as reader:
            yield reader


def _valid(batch: Any) -> Any:
    """The same batch, if its offsets, entries of dictionaries and UTF-8 are valid: nothing is read elsewhere."""
    batch.validate(full=True)
    return batch


def _numbered(
    pa: Any, path: Path, batches: Iterator[Any], wanted: Sequence[str], limit: int, class_names: dict[str, list[str]]
) -> NumberedRecords:
    number = 0
    decoder = _Decoder(pa, path, limit)
    for batch in batches:
        columns = []
        for name in wanted:
            columns.append(decoder.values(batch.column(name)))
            if name in class_names:
                columns[-1] = [_named(value, class_names[name]) for value in columns[-1]]
        for row in zip(*columns, strict=True):
            number += 1
            record: Record = dict(zip(wanted, row, strict=True))
            yield number, record


class _Decoder:
    """Python's values of arrays, in memory that is counted before it is taken.

    Entries of dictionaries become one object for a batch, however many rows have them.
    """

    def __init__(self, pa: Any, path: Path, limit: int) -> None:
        self._pa, self._path, self._limit, self._n_bytes = pa, path, limit, 0

    def values(self, array: Any) -> list[Any]:
        """The values of an array of one of the types of `_is_usable`."""
        types, kind = self._pa.types, array.type
        if types.is_list(kind) or types.is_large_list(kind):
            self._count(array.value_lengths().nbytes)
            items, end, lists = self.values(array.flatten()), 0, []
            for length in array.value_lengths().to_pylist():
                lists.append(None if length is None else items[end : end + length])
                end += length or 0
            return lists
        if types.is_struct(kind):
            names = [kind.field(i).name for i in range(kind.num_fields)]
            rows = zip(*map(self.values, array.flatten()), strict=True)
            valid = array.is_valid().to_pylist()
            return [dict(zip(names, row, strict=True)) if ok else None for row, ok in zip(rows, valid, strict=True)]
        if types.is_dictionary(kind):
            self._count(array.indices.nbytes)
            used = array.indices.unique().drop_null()
            entries = dict(zip(used.to_pylist(), self.values(array.dictionary.take(used)), strict=True))
            return [None if i is None else entries[i] for i in array.indices.to_pylist()]
        self._count(_view_bytes(array) if _is_string_view(self._pa, kind) else array.nbytes)
        values: list[Any] = array.to_pylist()
        return values

    def _count(self, n_bytes: int) -> None:
        self._n_bytes += n_bytes
        if self._n_bytes > self._limit:
            raise expansion_error(self._path, self._limit)


def _view_bytes(array: Any) -> int:
    """The bytes of the texts of an array of views: several may have the same bytes."""
    if not len(array):
        return 0
    views = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)[array.offset : array.offset + len(array)]
    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
    return int(views.nbytes + views[valid, 0].sum(dtype=np.int64))


def _named(value: Any, names: list[str]) -> Any:
    """The name of a class, or of each class of a list; a Hugging Face dataset has -1 where there is none."""
    if isinstance(value, list):
        return [named for item in value if (named := _named(item, names)) is not None]
    if type(value) is not int or value < 0:
        return None
    if value >= len(names):
        raise DataError(f"class {value} is outside of its {len(names)} classes")
    return names[value]


def _class_names(schema: Any) -> dict[str, list[str]]:
    """The names of the classes of each column that a Hugging Face dataset describes as ClassLabel."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        found = {}
        for column, feature in features.items():
            inner = feature[0] if isinstance(feature, list) else feature
            names = (inner.get("feature") if isinstance(inner.get("feature"), dict) else inner).get("names")
            if isinstance(names, list) and all(isinstance(name, str) for name in names):
                found[column] = names
        return found
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, RecursionError):
        return {}


def _is_string_view(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_string_view(kind))


def _is_string(pa: Any, kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_string_view(pa, kind)


def _is_scalar(pa: Any, kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return _is_string(pa, kind) or number


def _is_usable(pa: Any, kind: Any) -> bool:
    """Whether it is a column of texts, numbers, lists of these, or lists of objects of these."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
        if pa.types.is_struct(kind):
            return kind.num_fields > 0 and all(_is_scalar(pa, kind.field(i).type) for i in range(kind.num_fields))
    return _is_scalar(pa, kind)


def _usable(pa: Any, schema: Any) -> list[str]:
    counts = Counter(column.name for column in schema)
    return [column.name for column in schema if _is_usable(pa, column.type) and counts[column.name] == 1]


def _check_types(path: Path, usable: Sequence[str], wanted: Sequence[str]) -> None:
    known = set(usable)
    for name in wanted:
        if name not in known:
            raise DataError(f"{path}: the column {name[:40]!r} is no column of texts, numbers or lists of these")
