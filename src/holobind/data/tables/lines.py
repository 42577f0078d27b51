"""The lines of a stream of bytes, decoded one by one, within a limit of bytes for each line."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Self

from holobind.data import files
from holobind.errors import DataError

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class Lines:
    """An iterator over (number, line) of a stream. A line feed ends a line; a carriage return before it is removed.

    name      of the stream, in error messages
    waiting   whether the next line needs another read of the stream
    """

    def __init__(self, chunks: Iterable[bytes], name: str) -> None:
        self.name, self._chunks = name, iter(chunks)
        self._ready: deque[bytes] = deque()
        self._unfinished: list[bytes] = []
        self._unfinished_bytes = 0
        self._number, self._ended, self._began = 0, False, False

    @property
    def waiting(self) -> bool:
        return not self._ready

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return self

    def __next__(self) -> tuple[int, str]:
        while not self._ready:
            if self._ended:
                raise StopIteration
            self._read()
        self._number += 1
        return self._number, self._decoded(self._ready.popleft(), self._number)

    def peek(self, n: int) -> list[str]:
        """The next lines, at most n, which stay in the stream."""
        while len(self._ready) < n and not self._ended:
            self._read()
        first = self._number + 1
        return [self._decoded(line, first + i) for i, line in enumerate(list(self._ready)[:n])]

    def peek_first(self) -> str | None:
        """The first line that is not empty, which stays in the stream; None if there is none within 100 lines."""
        for n in range(1, 100):
            lines = self.peek(n)
            if len(lines) < n:
                return None
            if lines[-1].strip():
                return lines[-1]
        return None

    def skip(self, n: int) -> Self:
        for _ in range(n):
            next(self)
        return self

    def _read(self) -> None:
        chunk = next(self._chunks, None)
        if chunk is None:
            self._ended = True
            rest = b"".join(self._unfinished)
            if rest:
                self._ready.append(rest)
            return
        if not self._began and chunk:
            self._began = True
            if chunk.startswith(UTF16_MARKS):
                raise DataError(f"{self.name}: UTF-16 text; save it as UTF-8 (iconv -f utf-16 -t utf-8)")
            chunk = chunk.removeprefix(files.BOM)
        *lines, last = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._unfinished, lines[0]])
            self._unfinished, self._unfinished_bytes = [], 0
            self._ready.extend(lines)
        self._unfinished.append(last)
        self._unfinished_bytes += len(last)
        if self._unfinished_bytes > files.MAX_LINE_BYTES:
            raise self._too_long(self._number + len(self._ready) + 1)

    def _too_long(self, number: int) -> DataError:
        return DataError(
            f"{self.name}:{number}: the line has more than {files.MAX_LINE_BYTES} bytes; is this the right file?"
        )

    def _decoded(self, line: bytes, number: int) -> str:
        if len(line) > files.MAX_LINE_BYTES:
            raise self._too_long(number)
        try:
            return line.removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.name}:{number}: not UTF-8 text ({error.reason}); if it is Latin-1, "
                f"`iconv -f latin1 -t utf-8` converts it"
            ) from error
