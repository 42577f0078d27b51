"""Parquet, Arrow and Hugging Face files as their own libraries write them; damaged and hostile ones are refused."""

import builtins
import contextlib
import itertools
import json
import random

import pytest

from holobind import data
from holobind.data import files
from holobind.data.tables import columnar
from holobind.errors import DataError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

TEXTS = ["red apple", "grün", "a red car", "fast car"] * 3
LABELS = [["fruit", "red"], ["fruit"], ["car", "red"], []] * 3
LISTS = "12 rows, text in 'text', labels in 'labels', in lists"


def label_sets(dataset):
    ids, ends = dataset.train.Y.indices.tolist(), dataset.train.Y.indptr.tolist()
    return [sorted(dataset.label_names[i] for i in ids[a:b]) for a, b in itertools.pairwise(ends)]


def assert_read(path, description, labels=LABELS):
    dataset = data.load(path)
    assert (dataset.train.texts, label_sets(dataset)) == (TEXTS, [sorted(row) for row in labels])
    assert dataset.description == description


def table(**columns):
    return pa.table({"nr": list(range(12)), "text": TEXTS, "labels": LABELS, **columns})


def test_pyarrow_s_files(tmp_path):
    pq.write_table(table(), tmp_path / "a.parquet", row_group_size=5, compression="zstd")
    assert_read(tmp_path / "a.parquet", f"Parquet: {LISTS}")
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table().schema) as writer:
        writer.write_table(table(), max_chunksize=5)
    assert_read(tmp_path / "a.arrow", f"Arrow: {LISTS}")
    (tmp_path / "a.arrow").rename(tmp_path / "named.dat")  # the content tells the format
    assert_read(tmp_path / "named.dat", f"Arrow: {LISTS}")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("encoding", [None, "PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_every_encoding_of_parquet_gives_what_was_written(tmp_path, version, compression, encoding):
    """Nulls, empty lists, lists of objects, several pages and row groups, dictionaries that are full."""
    draw = random.Random(encoding)

    def text():
        return draw.choice([None, "", "grün", "x" * draw.randrange(99), str(draw.random())])

    rows = [
        {
            "text": text(),
            "labels": draw.choice([None, [], [text() for _ in range(draw.randrange(9))]]),
            "objects": draw.choice([None, [{"name": text(), "score": draw.choice([None, 1])}, None]]),
            "n": draw.choice([None, draw.getrandbits(40)]),
        }
        for _ in range(3000)
    ]
    strings = ["text", "labels.list.element", "objects.list.element.name"]
    encodings = {**dict.fromkeys(strings, encoding), "n": "DELTA_BINARY_PACKED"}
    pq.write_table(
        pa.Table.from_pylist(rows),
        tmp_path / "a.parquet",
        compression=compression,
        data_page_version=version,
        data_page_size=2000,
        dictionary_pagesize_limit=5000,
        row_group_size=1100,
        **({"use_dictionary": False, "column_encoding": encodings} if encoding else {}),
    )
    read = columnar.from_parquet(tmp_path / "a.parquet", None).records(list(rows[0]))
    assert [row for _, row in read] == rows


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_every_type_of_texts_in_arrow_gives_what_was_written(tmp_path, kind, compression):
    texts = [None, "", "grün", "x" * 5000, "y"] * 700
    columns = {"text": pa.array(texts, kind)}
    if kind == pa.string():
        columns["labels"] = pa.array([None, [], ["a", None], ["b" * 90], ["c"]] * 700)
    written = pa.table(columns)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(tmp_path / "a.arrow", written.schema, options=options) as writer:
        writer.write_table(written, max_chunksize=1500)
    read = columnar.from_arrow([tmp_path / "a.arrow"], tmp_path, None).records(list(columns))
    assert [row for _, row in read] == written.to_pylist()


def test_pandas_files(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": TEXTS, "tags": ["|".join(row) for row in LABELS]})
    where = "12 rows, text in 'text', labels in 'tags', separated by '|'"
    frame.to_parquet(tmp_path / "a.parquet")
    assert_read(tmp_path / "a.parquet", f"Parquet: {where}")
    frame.to_csv(tmp_path / "a.csv.gz")
    assert_read(tmp_path / "a.csv.gz", f"CSV: {where}")
    frame.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    assert_read(tmp_path / "a.tsv", f"TSV: {where}")
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    assert_read(tmp_path / "a.jsonl", f"JSON lines: {where}")
    frame.assign(tags=LABELS).to_csv(tmp_path / "b.csv", index=False)
    assert_read(tmp_path / "b.csv", "CSV: 12 rows, text in 'text', labels in 'tags', in lists")
    pandas.DataFrame({"text": TEXTS, "label": [1, None, 2, 1] * 3}).to_parquet(tmp_path / "c.parquet")
    assert label_sets(data.load(tmp_path / "c.parquet"))[:3] == [["1"], [], ["2"]]


def test_polars_files(tmp_path):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"text": TEXTS, "labels": LABELS})
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_ipc(tmp_path / "a.arrow", compression="zstd")
    assert_read(tmp_path / "a.parquet", f"Parquet: {LISTS}")
    assert_read(tmp_path / "a.arrow", f"Arrow: {LISTS}")


def test_hugging_face_datasets_on_disk(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    one = datasets.Dataset.from_dict({"text": TEXTS, "labels": LABELS})
    one.save_to_disk(tmp_path / "one", num_shards=2)
    assert_read(tmp_path / "one", f"Hugging Face dataset: {LISTS}")
    datasets.DatasetDict(train=one, test=one).save_to_disk(tmp_path / "two")
    assert_read(tmp_path / "two", f"Hugging Face dataset: {LISTS}; 12 test rows")
    classes = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    named = datasets.Dataset.from_dict({"text": TEXTS, "label": [0, 1, -1, 1] * 3}, features=classes)
    named.save_to_disk(tmp_path / "named")
    assert label_sets(data.load(tmp_path / "named"))[:3] == [["neg"], ["pos"], []]
    named.to_parquet(tmp_path / "named.parquet")
    assert label_sets(data.load(tmp_path / "named.parquet"))[:2] == [["neg"], ["pos"]]


def test_a_folder_cannot_name_files_outside_of_it(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    for name in ("../b.arrow", "/etc/passwd", "..", 3):
        (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
        with pytest.raises(DataError, match="there is no training split"):
            data.load(folder)


def test_without_pyarrow_the_error_names_what_to_install(tmp_path, monkeypatch):
    pq.write_table(table(), tmp_path / "a.parquet")
    imported = builtins.__import__

    def missing(name, *arguments, **options):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return imported(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(DataError, match=r"need pyarrow; install it: pip install 'holobind\[formats\]'"):
        data.load(tmp_path / "a.parquet")


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_damaged_files_are_refused_or_read(tmp_path, name):
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(table(), path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table().schema) as writer:
            writer.write_table(table())
    content = path.read_bytes()
    for size in range(8, len(content) - 8, max(1, len(content) // 40)):
        path.write_bytes(content[:size])
        with contextlib.suppress(DataError):
            assert len(data.load(path).train) <= 12
    for at in range(8, len(content), max(1, len(content) // 150)):
        changed = bytearray(content)
        changed[at] ^= 0xFF
        path.write_bytes(changed)
        with contextlib.suppress(DataError):
            data.load(path, text_field="text", label_field="labels", label_separator="none")


@pytest.mark.parametrize("index", [3, 127, -1])
def test_an_entry_that_the_dictionary_of_a_parquet_file_lacks_is_refused(tmp_path, monkeypatch, index):
    """pyarrow reads such indices from a damaged page; a list would take -1 for its last entry."""
    path = tmp_path / "a.parquet"
    pq.write_table(table(), path)
    texts = pa.DictionaryArray.from_arrays(pa.array([0, index], pa.int32()), ["a", "b", "c"], safe=False)
    batch = pa.RecordBatch.from_arrays([texts, pa.array([["x"], ["y"]])], ["text", "labels"])
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: iter([batch]))
    with pytest.raises(DataError, match="a damaged file, or none that pyarrow reads"):
        data.load(path, text_field="text", label_field="labels")


def test_a_small_parquet_file_cannot_fill_the_memory(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    n = files.MIN_ROW_LIMIT + 1
    pq.write_table(pa.table({"text": pa.nulls(n, pa.string()), "labels": pa.nulls(n, pa.string())}), path)
    with pytest.raises(DataError, match="it expands to more than 1,048,576 rows"):
        data.load(path)
    monkeypatch.setattr(files, "MIN_EXPANSION_BYTES", 10_000)
    monkeypatch.setattr(files, "MAX_EXPANSION", 1)
    pq.write_table(pa.table({"text": ["x" * 100_000] * 12, "labels": LABELS}), path, compression="zstd")
    with pytest.raises(DataError, match=r"it expands to more than .* bytes"):
        data.load(path)


def test_columns_that_are_neither_texts_nor_labels_are_refused(tmp_path):
    odd = pa.table({"text": TEXTS, "labels": pa.array([[None] * 3] * 12, pa.list_(pa.null()))})
    pq.write_table(odd, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"has no field 'labels'|holds the labels"):
        data.load(tmp_path / "a.parquet", label_field="labels")
