"""A cache of embeddings by the content of texts: one SQLite file an encoder, in the user's cache directory.

The key of an embedding is the hash of its text; the texts themselves are not stored. What is computed is stored batch
by batch, so that a run that was interrupted goes on where it was. As everywhere, a cache is never the cause of an
error: where the file cannot be used, embeddings are computed again.
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from holobind.data import cache

KEY_BYTES = 16
MAX_FILE_BYTES = 8 << 30  # a larger file takes no more embeddings
LOOKUPS = 500  # keys of one query
BUSY_SECONDS = 30.0
# Of a damaged file. The text of an error may quote the file, and Python then fails to decode it.
DAMAGED = (sqlite3.Error, UnicodeDecodeError)
HalfArray = NDArray[np.float16]


class EmbeddingCache:
    """Embeddings of texts in float16, stored by the hash of the text.

    connection   to the file; None stores nothing and finds nothing
    """

    def __init__(self, connection: sqlite3.Connection | None, dim: int) -> None:
        self.connection, self.dim = connection, dim
        self._full = False

    @classmethod
    def of(cls, digest: str | None, dim: int) -> Self:
        """The cache of the encoder with this digest; of None, one that stores nothing."""
        folder = None if digest is None else cache.writable_dir()
        if folder is None:
            return cls(None, dim)
        path = folder / "embeddings" / f"{digest}.sqlite"
        try:
            path.parent.mkdir(exist_ok=True)
            if path.exists() and not cache.is_own_file(path.stat()):
                raise PermissionError("the file of another user")
            connection = sqlite3.connect(path, timeout=BUSY_SECONDS)
            connection.execute("CREATE TABLE IF NOT EXISTS embedding (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        except (OSError, *DAMAGED) as error:
            cache.skipped(error)
            return cls(None, dim)
        store = cls(connection, dim)
        store._full = path.stat().st_size > MAX_FILE_BYTES
        return store

    def get(self, texts: Sequence[str]) -> dict[str, HalfArray]:
        """The stored embeddings of some of these texts, by text. A damaged one counts as not stored."""
        found: dict[str, HalfArray] = {}
        for first in range(0, len(texts), LOOKUPS):
            by_key = {_key(text): text for text in texts[first : first + LOOKUPS]}
            marks = ",".join("?" * len(by_key))
            rows = self._execute(f"SELECT key, value FROM embedding WHERE key IN ({marks})", list(by_key))
            for key, value in rows:
                if isinstance(value, bytes) and len(value) == 2 * self.dim and key in by_key:
                    row = np.frombuffer(value, "<f2").astype(np.float16)
                    if np.isfinite(row).all():
                        found[by_key[key]] = row
        return found

    def put(self, texts: Sequence[str], rows: HalfArray) -> None:
        """Store the embeddings of texts."""
        if self.connection is None or self._full:
            return
        values = [(_key(text), row.astype("<f2").tobytes()) for text, row in zip(texts, rows, strict=True)]
        try:
            with self.connection:
                self.connection.executemany("INSERT OR REPLACE INTO embedding VALUES (?, ?)", values)
        except DAMAGED as error:
            self._give_up(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.connection is not None:
            self.connection.close()

    def _execute(self, query: str, values: list[Any]) -> list[Any]:
        if self.connection is None:
            return []
        try:
            return self.connection.execute(query, values).fetchall()
        except DAMAGED as error:
            self._give_up(error)
            return []

    def _give_up(self, error: Exception) -> None:
        cache.skipped(error)
        if self.connection is not None:
            self.connection.close()
        self.connection = None


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=KEY_BYTES).digest()
