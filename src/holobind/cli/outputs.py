"""Files of predictions: JSON lines, or Parquet where the name ends in .parquet. Written whole or not at all."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from holobind._files import atomic_path, atomic_write, write_errors
from holobind.cli.label_options import Prediction
from holobind.data.files import OPEN_COMPRESSED
from holobind.errors import OptionError

PARQUET = ".parquet"
ROW_GROUP_ROWS = 1 << 14  # of a Parquet file, which are in memory until they are written

WriteBatch = Callable[[list[Prediction]], None]


@contextmanager
def open_predictions(path: Path | None) -> Iterator[WriteBatch]:
    """A function that writes a batch of predictions to a file, or to standard output (None)."""
    if path is not None and path.suffix.lower() == PARQUET:
        with write_errors(path), atomic_path(path) as part, _parquet_writer(path, part) as write:
            yield write
        return
    with _open_lines(path) as file:

        def write_lines(batch: list[Prediction]) -> None:
            file.write("".join(json.dumps(prediction, ensure_ascii=False) + "\n" for prediction in batch).encode())
            file.flush()

        yield write_lines


@contextmanager
def _open_lines(path: Path | None) -> Iterator[Any]:
    """Standard output, or a file, compressed if its name says so."""
    if path is None:
        yield typer.get_binary_stream("stdout")
        return
    compress = OPEN_COMPRESSED.get(path.suffix.lower())
    with write_errors(path), atomic_write(path) as raw:
        if compress is None:
            yield raw
            return
        with compress(raw, "wb") as file:
            yield file


@contextmanager
def _parquet_writer(path: Path, part: Path) -> Iterator[WriteBatch]:
    """Rows with the columns id (where the first row has one), labels, unknown and error.

    `labels` is a list of {label, score, probability}. Label names are strings, and ids of labels are int64.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise OptionError(f"{path}: Parquet needs pyarrow; install it: pip install 'holobind[formats]'") from error
    writer: Any = None
    schema: Any = None
    waiting: list[Prediction] = []

    def write_group() -> None:
        nonlocal writer, schema
        if schema is None:
            schema = _schema(pa, waiting)
            writer = pq.ParquetWriter(part, schema)
        rows = [_row(prediction, schema) for prediction in waiting]
        writer.write_table(pa.Table.from_pylist(rows, schema))
        waiting.clear()

    def write(batch: list[Prediction]) -> None:
        waiting.extend(batch)
        if len(waiting) >= ROW_GROUP_ROWS:
            write_group()

    try:
        yield write
        if waiting or writer is None:
            write_group()
    finally:
        if writer is not None:
            writer.close()


def _schema(pa: Any, predictions: list[Prediction]) -> Any:
    labels = [label["label"] for row in predictions for label in row.get("labels", ())]
    ids = [row["id"] for row in predictions if "id" in row]
    label = pa.struct([
        ("label", pa.int64() if labels and all(type(name) is int for name in labels) else pa.string()),
        ("score", pa.float64()),
        ("probability", pa.float64()),
    ])  # fmt: skip
    columns = [("labels", pa.list_(label)), ("unknown", pa.string()), ("error", pa.string())]
    if ids:
        columns.insert(0, ("id", pa.int64() if all(type(each) is int for each in ids) else pa.string()))
    return pa.schema(columns)


def _row(prediction: Prediction, schema: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict(prediction)
    if "id" in schema.names:
        id_ = row.get("id")
        if str(schema.field("id").type) == "string":
            row["id"] = None if id_ is None else str(id_)
        elif type(id_) is not int:
            raise OptionError(
                f"id {id_!r:.40} is no whole number like those before it; write JSON lines, or name no id"
            )
    return row
