"""What the checks of Parquet and Arrow files cost, as a fraction of the time that reading them takes.

    .venv/bin/python benchmarks/bench_columnar.py [--rows 200000] [--repeats 3]

Times are processor seconds, the least of some repeats. The last line printed is JSON.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from holobind.data.tables import arrow_messages, columnar, parquet_pages

LIMIT = 1 << 40
DELTA = {"text": "DELTA_BYTE_ARRAY", "labels.list.element": "DELTA_LENGTH_BYTE_ARRAY"}


def make_table(n_rows: int) -> Any:
    """Texts of 40 words, and lists of three labels of 5,000."""
    draw = random.Random(0)
    words = [f"word{i}" for i in range(20_000)]
    texts = [" ".join(draw.choices(words, k=40)) for _ in range(n_rows)]
    labels = [[f"label {draw.randrange(5000)}" for _ in range(3)] for _ in range(n_rows)]
    return pa.table({"text": texts, "labels": labels})


def least_seconds(action: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        action()
        seconds.append(time.process_time() - began)
    return min(seconds)


def check_parquet(path: Path) -> None:
    with pq.ParquetFile(path) as file:
        leaves = {i: file.metadata.schema.column(i) for i in range(file.metadata.num_columns)}
    parquet_pages.check_pages(path, parquet_pages.read_footer(path), leaves, "", LIMIT)


def read(source: Any) -> None:
    for _ in source.records(["text", "labels"]):
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    table, rows = make_table(chosen.rows), []
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "a")
        for name in ("parquet", "parquet, delta encodings", "arrow, zstd"):
            if name.startswith("parquet"):
                delta = {"use_dictionary": False, "column_encoding": DELTA} if "delta" in name else {}
                pq.write_table(table, path, row_group_size=50_000, **delta)
                whole = least_seconds(lambda: read(columnar.from_parquet(path, LIMIT)), chosen.repeats)
                check = least_seconds(lambda: check_parquet(path), chosen.repeats)
            else:
                with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
                    writer.write_table(table, max_chunksize=10_000)
                whole = least_seconds(lambda: read(columnar.from_arrow([path], path, LIMIT)), chosen.repeats)
                check = least_seconds(lambda: arrow_messages.check_messages(path, LIMIT), chosen.repeats)
            fraction = round(check / whole, 5)
            rows.append({"file": name, "bytes": path.stat().st_size, "seconds": round(whole, 3), "fraction": fraction})
            print(f"{name:26} read in {whole:.3f} s, of which checks {check:.4f} s ({fraction:.2%})", flush=True)
    print(json.dumps({"bench": "columnar", "rows": chosen.rows, "files": rows}))


if __name__ == "__main__":
    main()
