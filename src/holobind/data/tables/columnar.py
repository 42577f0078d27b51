"""Tables by columns: Parquet files, Arrow files and streams, and folders of Hugging Face datasets, through pyarrow.

These files are not trusted: only columns of texts, numbers and lists of these are read, every batch is validated before
it is used, and what a file expands to is bounded as for compressed text.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holobind.data.files import check_is_file, expansion_error, expansion_limit, row_limit
from holobind.data.tables.layout import Record
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
    with _errors(path, pa):
        metadata = pq.read_metadata(path)
        size = sum(max(0, metadata.row_group(i).total_byte_size) for i in range(metadata.num_row_groups))
        if size > limit:
            raise expansion_error(path, limit)
        if metadata.num_rows > (max_rows := row_limit(path.stat().st_size, max_uncompressed)):
            raise expansion_error(path, max_rows, "rows")
        schema = pq.read_schema(path)
        usable = _usable(pa, schema)
    strings = [column.name for column in schema if column.name in usable and _is_string(pa, column.type)]

    def records(wanted: Sequence[str]) -> NumberedRecords:
        _check_types(path, usable, wanted)
        # A text that a million rows repeat is one entry of a dictionary, and stays one in memory.
        shared = [name for name in strings if name in wanted]
        with _errors(path, pa), pq.ParquetFile(path, read_dictionary=shared, buffer_size=READ_BYTES) as file:
            batches = map(_valid, file.iter_batches(batch_size=BATCH_ROWS, columns=list(wanted), use_threads=False))
            yield from _numbered(pa, path, batches, wanted, limit, _class_names(schema))

    return Source(str(path), "Parquet", usable, records)


def from_arrow(paths: Sequence[Path], name: Path, max_uncompressed: int | None, kind: str = "Arrow") -> Source:
    """The table of Arrow files or streams, one after the other."""
    pa = _pyarrow(name)
    for path in paths:
        check_is_file(path)
    n_bytes = sum(path.stat().st_size for path in paths)
    limit, max_rows = expansion_limit(n_bytes, max_uncompressed), row_limit(n_bytes, max_uncompressed)
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
        with (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(mapped) as reader:
            yield reader


def _valid(batch: Any) -> Any:
    """The same batch, if its offsets, entries of dictionaries and UTF-8 are valid: nothing is read elsewhere."""
    batch.validate(full=True)
    return batch


def _numbered(
    pa: Any, path: Path, batches: Iterator[Any], wanted: Sequence[str], limit: int, class_names: dict[str, list[str]]
) -> NumberedRecords:
    number, n_bytes = 0, 0
    for batch in batches:
        columns = []
        for name in wanted:
            column = batch.column(name)
            if pa.types.is_dictionary(column.type):
                n_bytes += column.indices.nbytes
                values = column.dictionary.to_pylist()
                columns.append([None if i is None else values[i] for i in column.indices.to_pylist()])
            else:
                n_bytes += column.nbytes
                columns.append(column.to_pylist())
            if name in class_names:
                columns[-1] = [_named(value, class_names[name]) for value in columns[-1]]
        if n_bytes > limit:
            raise expansion_error(path, limit)
        for row in zip(*columns, strict=True):
            number += 1
            record: Record = dict(zip(wanted, row, strict=True))
            yield number, record


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


def _is_string(pa: Any, kind: Any) -> bool:
    view = getattr(pa.types, "is_string_view", lambda _: False)
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or view(kind)


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
