"""The cache of embeddings gives back what was stored for a text, and is never the cause of an error."""

import sqlite3

import numpy as np
import pytest

from holobind.data import cache
from holobind.data.embedding_cache import EmbeddingCache

DIGEST = "0" * 32
TEXTS = ["red", "green", "öl\n", ""]
ROWS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float16)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_said", False)
    return tmp_path


def stored(texts, digest=DIGEST, dim=3):
    with EmbeddingCache.of(digest, dim) as store:
        return store.get(texts)


def fill():
    with EmbeddingCache.of(DIGEST, 3) as store:
        store.put(TEXTS, ROWS)


def test_what_was_stored_is_found_by_its_text():
    fill()
    found = stored([*TEXTS[::-1], "new", *(str(i) for i in range(2000))])
    assert set(found) == set(TEXTS)
    assert all(np.array_equal(found[text], row) for text, row in zip(TEXTS, ROWS, strict=True))


def test_encoders_do_not_share_a_cache():
    fill()
    assert stored(TEXTS, "1" * 32) == {} and stored(TEXTS, dim=4) == {}


def test_without_a_digest_nothing_is_stored(folder):
    with EmbeddingCache.of(None, 3) as store:
        store.put(TEXTS, ROWS)
        assert store.get(TEXTS) == {}
    assert not list(folder.iterdir())


def test_damaged_entries_are_not_found(folder):
    fill()
    path = folder / "embeddings" / f"{DIGEST}.sqlite"
    with sqlite3.connect(path) as connection:
        values = [b"", "text", None, np.full(3, np.nan, "<f2").tobytes()]
        keys = [key for (key,) in connection.execute("SELECT key FROM embedding")]
        connection.executemany("UPDATE embedding SET value = ? WHERE key = ?", zip(values, keys, strict=True))
    connection.close()
    assert stored(TEXTS) == {}


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to be looked at" * 50, b"SQLite format 3\0" * 100]
)
def test_a_file_that_is_no_database_is_left_alone(folder, content, caplog):
    (folder / "embeddings").mkdir()
    path = folder / "embeddings" / f"{DIGEST}.sqlite"
    path.write_bytes(content)
    fill()
    assert stored(TEXTS) == {} and path.read_bytes() == content
    assert "cannot be used as the cache" in caplog.text and len(caplog.records) == 1


def test_a_damaged_name_of_the_table_is_no_error(folder, caplog):
    """The error of SQLite quotes the name, which is no UTF-8."""
    fill()
    path = folder / "embeddings" / f"{DIGEST}.sqlite"
    path.write_bytes(path.read_bytes().replace(b"embeddingembedding", b"\xff\xfeeddingembedding"))
    fill()
    assert stored(TEXTS) == {} and "cannot be used as the cache" in caplog.text


def test_a_full_cache_takes_no_more(monkeypatch):
    fill()
    monkeypatch.setattr("holobind.data.embedding_cache.MAX_FILE_BYTES", 10)
    with EmbeddingCache.of(DIGEST, 3) as store:
        store.put(["new"], ROWS[:1])
    assert set(stored([*TEXTS, "new"])) == set(TEXTS)
