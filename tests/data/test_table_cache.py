"""Texts and tables that are parsed into the cache: the same data, in memory that does not grow with the file."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from helpers.twins import identical

from holobind.data import cache, csr, load, mapped_texts, run_table, table_cache
from holobind.data.mapped_texts import MappedTexts, TextBuilder
from holobind.data.tfidf import Tfidf
from holobind.errors import DataError, LabelError

WORDS = ["red apple", "blue car", "größe über alles", "a, b; c", "", "日本語の本", "green apple tree " * 20]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "cache"))


def records(n, seed=0):
    generator = np.random.default_rng(seed)
    for i in range(n):
        labels = [f"label {k}" for k in generator.integers(0, 20, generator.integers(0, 4)).tolist()]
        yield f"{WORDS[generator.integers(len(WORDS))]} number {i % 50}", labels


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in rows))


def write_csv(path, rows):
    lines = ("{},{}".format(f'"{text}"', "|".join(labels)) for text, labels in rows)
    path.write_text("text,labels\n" + "\n".join(lines) + "\n")


def write_tsv(path, rows):
    path.write_text("".join("\t".join([text, *labels]) + "\n" for text, labels in rows))


def write_parquet(path, rows):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    texts, labels = zip(*rows, strict=True)
    table = pa.table({"text": list(texts), "labels": [list(row) for row in labels]})
    pq.write_table(table, path, row_group_size=10**9, data_page_size=1 << 14)  # one group of many pages


def write_sparse(path, rows):
    generator = np.random.default_rng(0)
    lines = []
    for _ in rows:
        ids = np.unique(generator.integers(0, 500, 30)).tolist()
        lines.append(f"{generator.integers(20)} " + " ".join(f"{i}:{generator.random():.4f}" for i in ids))
    path.write_text(f"{len(lines)} 500 20\n" + "\n".join(lines) + "\n")


WRITERS = {
    "train.jsonl": write_jsonl,
    "train.csv": write_csv,
    "train.tsv": write_tsv,
    "train.parquet": write_parquet,
    "train.txt": write_sparse,
}


@pytest.mark.parametrize("name", WRITERS)
def test_data_in_files_is_that_in_memory(tmp_path, monkeypatch, name):
    monkeypatch.setattr(table_cache, "BLOCK_ROWS", 160)
    monkeypatch.setattr(mapped_texts, "CHUNK_BYTES", 500)
    folder = tmp_path / "data"
    folder.mkdir()
    WRITERS[name](folder / name, records(1000))
    WRITERS[name](folder / name.replace("train", "test"), records(90, seed=1))
    in_memory = load(folder)
    for _ in range(2):  # parsed into the cache, then found there
        in_file = load(folder, memory_map=True)
        assert in_file.label_names == in_memory.label_names and in_file.feature_names == in_memory.feature_names
        assert in_file.description == in_memory.description and in_file.layout == in_memory.layout
        for split in ("train", "test"):
            wanted, found = in_memory.splits[split], in_file.splits[split]
            assert identical(found.X, wanted.X) and identical(found.Y, wanted.Y) and csr.is_mapped(found.X)
            assert (found.texts is None) == (wanted.texts is None) == (name == "train.txt")
            if found.texts is not None:
                assert isinstance(found.texts, MappedTexts) and list(found.texts) == wanted.texts


def test_texts_beside_features_and_labels_beside_texts_are_stored_too(tmp_path):
    rows = list(records(200))
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train_texts.txt").write_text("".join(f"{text}\r\n" for text, _ in rows))
    (folder / "train_labels.txt").write_text("".join("\t".join(labels) + "\n" for _, labels in rows))
    in_memory, in_file = load(folder), load(folder, memory_map=True)
    assert identical(in_file.train.X, in_memory.train.X) and identical(in_file.train.Y, in_memory.train.Y)
    (folder / "train_labels.txt").write_text("a\n")
    with pytest.raises(DataError, match=r"has 200 lines and train_labels\.txt has 1"):
        load(folder, memory_map=True)
    (folder / "train_labels.txt").unlink()
    write_sparse(folder / "train.txt", rows)
    in_memory, in_file = load(folder), load(folder, memory_map=True)
    assert isinstance(in_file.train.texts, MappedTexts) and list(in_file.train.texts) == in_memory.train.texts


def test_a_label_that_the_list_lacks_is_named_with_its_point(tmp_path):
    write_jsonl(tmp_path / "train.jsonl", [("a b", ["x"]), ("c d", ["x", "unknown"])])
    (tmp_path / "labels.txt").write_text("x\n")
    with pytest.raises(LabelError, match=r"label 'unknown' of point 2 is not among the 1 in labels\.txt"):
        load(tmp_path, memory_map=True)


@pytest.mark.parametrize("change", ["file", "option", "damage"])
def test_a_stale_or_damaged_cache_of_a_table_is_not_used(tmp_path, change):
    path = tmp_path / "rows.csv"
    path.write_text("text,title,labels\n" + "a b,c d,x\n" * 30)
    options = {"text_field": "text"}
    assert load(path, memory_map=True, **options).train.texts[0] == "a b"
    if change == "file":
        path.write_text(path.read_text().replace("a b", "e f"))
    elif change == "option":
        options = {"text_field": "title"}
    else:
        for file in (tmp_path / "cache" / "parsed").iterdir():
            content = bytearray(file.read_bytes())
            content[-1] ^= 1
            file.write_bytes(content)
    wanted = {"file": "e f", "option": "c d", "damage": "a b"}[change]
    assert load(path, memory_map=True, **options).train.texts[0] == wanted


@pytest.mark.parametrize(
    "changed",
    [
        {"labels": np.array([0, 9], np.int32)},
        {"labels": np.array([0, -1], np.int32)},
        {"labels": np.array([0.0, 1.0], np.float32)},
        {"label_offsets": np.array([0, 2, 1], np.int32)},
        {"label_offsets": np.array([0, 2], np.int32)},
        {"text_offsets": np.array([0, 3], np.int32)},
        {"name_offsets": np.array([0, 2, 1, 2], np.int32)},
        {"names": np.frombuffer(b"xx", np.uint8)},
        {"names": np.frombuffer(b"\xff\xfe", np.uint8)},
        {"about": {"layout": {"fields": 3}}},
        {"about": []},
    ],
    ids=str,
)
def test_a_forged_cache_of_a_table_is_ignored(tmp_path, changed):
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, [("a b", ["x"]), ("c", ["y"])])
    wanted = load(path, memory_map=True)
    (file,) = (tmp_path / "cache" / "parsed").iterdir()
    key = cache.fingerprint(path)
    metadata, arrays = cache.read(file, key)
    forged = {name: array for name, array in changed.items() if name != "about"}
    cache.write(file, key, metadata | {"about": changed.get("about", metadata["about"])}, arrays | forged)
    found = load(path, memory_map=True)
    assert list(found.train.texts) == ["a b", "c"] and found.label_names == ["x", "y"]
    assert identical(found.train.Y, wanted.train.Y) and found.layout == wanted.layout


@pytest.mark.parametrize(
    ("data", "offsets"), [(3, [0, 2]), (3, [1, 3]), (3, []), (3, [0.0, 3.0]), (3, [0, 2, 1, 3]), (3, [0, 9, 3])]
)
def test_offsets_that_do_not_divide_the_bytes_are_refused(data, offsets):
    with pytest.raises(DataError, match="offsets"):
        list(MappedTexts(np.zeros(data, np.uint8), np.array(offsets)))


def test_texts_in_a_file_are_a_sequence(tmp_path):
    builder = TextBuilder(tmp_path)
    for text in WORDS:
        builder.append(text)
    texts = MappedTexts(*builder.build())
    assert list(texts) == WORDS and texts[2:5] == WORDS[2:5] and texts[::-2] == WORDS[::-2] and texts[5:2] == []
    assert list(texts.every(3)) == WORDS[::3]
    assert texts[-1] == WORDS[-1] and len(texts) == len(WORDS) and "blue car" in texts
    assert list(texts.chunks(3, 10)) == [WORDS[:1], WORDS[1:2], WORDS[2:3], WORDS[3:5], WORDS[5:6], WORDS[6:]]
    with pytest.raises(IndexError):
        texts[len(WORDS)]


def stored(texts):
    builder = TextBuilder(None)
    for text in texts:
        builder.append(text)
    return MappedTexts(*builder.build())


def test_a_full_table_drops_the_rarest_words_and_keeps_the_lengths_of_texts(monkeypatch):
    generator = np.random.default_rng(0)
    frequent = [f"word{i}" for i in range(40)]
    texts = []
    for i in range(400):
        words = [*generator.choice(frequent, 30).tolist(), f"rare{i}x", f"rare{i}y"]
        texts.append(" ".join(generator.permutation(words).tolist()))
    whole, X = Tfidf.fit(texts)
    monkeypatch.setattr(run_table, "CHUNK_RUNS", 1000)
    monkeypatch.setattr("holobind.data.tfidf.MAX_RUNS", 100)
    monkeypatch.setattr("holobind.data.tfidf.TEXTS_PER_CHUNK", 20)
    fitted, found = Tfidf.fit(stored(texts))
    assert fitted.streamed.dropped > 500 and "rare words were dropped" in fitted.streamed.summary()
    # Only prefixes of rare words have another frequency; texts of 32 words have their lead, dropped words included.
    kept = [whole.words.index(word) for word in frequent]
    assert [fitted.words.index(word) for word in frequent] and csr.is_mapped(found)
    np.testing.assert_array_equal(whole.idf[kept], fitted.idf[[fitted.words.index(word) for word in frequent]])
    counts = [(X[:, [i]] > 0).sum() for i in kept]
    assert counts == [(found[:, [fitted.words.index(word)]] > 0).sum() for word in frequent]
    ratios = X[:, kept].toarray(), found[:, [fitted.words.index(word) for word in frequent]].toarray()
    for row, other in zip(*ratios, strict=True):  # the same but for the length of the row
        np.testing.assert_allclose(row / np.linalg.norm(row), other / np.linalg.norm(other), rtol=1e-5)


def test_a_table_that_is_not_full_gives_the_features_of_memory(monkeypatch):
    monkeypatch.setattr(run_table, "CHUNK_RUNS", 50)
    texts = [text for text, _ in records(300)]
    for analyzer in ("word", "char", "plain"):
        wanted, found = (
            Tfidf.fit(given, analyzer=analyzer, words_only=analyzer == "plain") for given in (texts, stored(texts))
        )
        assert wanted[0].words == found[0].words and identical(wanted[1], found[1])
        np.testing.assert_array_equal(wanted[0].idf, found[0].idf)
        assert identical(found[0].transform(stored(texts)), wanted[1])
        assert found[0].streamed.dropped == 0 and wanted[0].streamed is None


GROWTH = """
import sys
from holobind.data import _array_builder, _block_reader, cache, csr, files, load, mapped_texts, run_table, table_cache
from holobind.data import tfidf

_block_reader.BLOCK_BYTES = mapped_texts.CHUNK_BYTES = files.READ_BYTES = 1 << 16
cache.CHECKSUM_CHUNK_BYTES = 1 << 18
csr.BLOCK_ENTRIES = run_table.CHUNK_RUNS = _array_builder.SUMMED_COUNTS = 1 << 14
mapped_texts.CHUNK_TEXTS = run_table.CHUNK_TEXTS = tfidf.TEXTS_PER_CHUNK = 256
table_cache.BLOCK_ROWS = 1 << 10
peaks = []
for path in sys.argv[1:]:
    assert len(load(path, memory_map=True).train)
    with open("/proc/self/status") as status:  # what getrusage says includes the parent process
        peaks.append(next(int(line.split()[1]) for line in status if line.startswith("VmHWM")))
print(*peaks)
"""


@pytest.mark.parametrize("name", WRITERS)
def test_peak_memory_does_not_grow_with_the_file(tmp_path, name):
    """Resident memory of a process that reads a file of 1 MB or more, and then one of four times its size."""
    n, sizes = 8000, []
    for times in (1, 4):
        folder = tmp_path / str(times)
        folder.mkdir()
        texts = ((f"{text} {'lorem ipsum dolor sit amet ' * 4}", labels) for text, labels in records(times * n))
        WRITERS[name](folder / name, texts)
        sizes.append(text_bytes(folder / name))
    command = [sys.executable, "-c", GROWTH, *(str(tmp_path / str(times)) for times in (1, 4))]
    # Pyarrow's own allocator would keep 2 MB more after a larger file.
    settings = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    environment = {**os.environ, **settings}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    small, large = (int(kilobytes) << 10 for kilobytes in done.stdout.split())
    assert large - small < 0.5 * (sizes[1] - sizes[0]), (small, large, sizes)


def text_bytes(path):
    """Bytes of a file; of the texts in a Parquet file, which is compressed."""
    if path.suffix != ".parquet":
        return path.stat().st_size
    import pyarrow.parquet as pq

    return 120 * pq.read_metadata(path).num_rows
