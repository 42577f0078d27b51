"""XML-Repository and svmlight multilabel text: `l1,l2 f:v f:v`, read at the speed of memory and written.

A file is read in blocks of whole lines; several threads parse blocks while the next ones are read (and unpacked).

    3 5 4            points features labels: optional, also as a comment (`# 3 5 4`), as we write it for svmlight
    0,2 1:0.5 4:1    labels, then features
     3:2             a point without labels begins with a space (or with its first feature)
    1                a point without features

A line of blanks only is a point with neither. An empty line is no point, unless the header counts it as one. `#` begins
a comment. Ids start at 0, or at 1 for `one_based`. A label said twice is one label.
"""

import bz2
import gzip
import lzma
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from holobind._types import CsrArray, ProgressCallback
from holobind.data import cache as stored
from holobind.data._growing import Growing
from holobind.data.csr import from_arrays
from holobind.data.dataset import Split
from holobind.errors import DataError, LabelError

PACKED: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
BROKEN = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
BLOCK = 1 << 20
LONGEST_LINE = 1 << 30
WORTH_CACHING = 1 << 20
MOST_IDS = 2**31 - 1
HEADER = re.compile(rb"#?[ \t]*(\d+)[ \t]+(\d+)[ \t]+(\d+)[ \t]*\r?\n?")
BOM = b"\xef\xbb\xbf"


def read(
    path: Path,
    *,
    one_based: bool = False,
    cache: bool = True,
    memory_map: bool = False,
    progress: ProgressCallback | None = None,
) -> tuple[Split, bool]:
    """One file as a part, and whether its header says how many features and labels there are.

    memory_map   leave the matrices in the cache's file, from which the system fetches what is looked at
    """
    if not cache:
        return _read(path, one_based, progress)[:2]
    at = stored.location(path, one_based=one_based)
    try:
        key = stored.fingerprint(path)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    if found := stored.read(at, key, mapped=memory_map):
        facts, arrays = found
        return _part(arrays, facts["shape"]), facts["declared"]
    part, declared, size = _read(path, one_based, progress, room=stored.directory() if memory_map else None)
    if (size >= WORTH_CACHING or memory_map) and stored.fingerprint(path) == key:
        arrays = {"values": part.X.data, "ids": part.X.indices, "id_ends": part.X.indptr}
        arrays |= {"labels": part.Y.indices, "label_ends": part.Y.indptr}
        shape = [len(part), part.X.shape[1], part.Y.shape[1]]
        stored.write(at, key, {"shape": shape, "declared": declared}, arrays)
        if memory_map and (found := stored.read(at, key, mapped=True)):
            return _part(found[1], found[0]["shape"]), declared
    return part, declared


def _part(arrays: dict[str, NDArray[Any]], shape: tuple[int, int, int]) -> Split:
    points, features, labels = shape
    n = len(arrays["labels"])
    ones = np.broadcast_to(np.int32(1), n) if isinstance(arrays["labels"], np.memmap) else np.ones(n, np.int32)
    return Split(
        from_arrays(arrays["values"], arrays["ids"], arrays["id_ends"], (points, features)),
        from_arrays(ones, arrays["labels"], arrays["label_ends"], (points, labels)),
    )


def features(lines: Sequence[bytes], n_features: int, where: str, first: int = 1) -> CsrArray:
    """The features of lines of a stream, without their ends; their labels may be left out, and are not kept.

    where, first   the name of the stream and the number of the first line, for messages

    An empty line has no features, and a comment is a mistake: there is a row for every line.
    """
    for number, line in enumerate(lines, first):
        if line.startswith(b"#"):
            raise DataError(f"{where}:{number}: a comment; expected a line like '1:0.5 4:1'")
    text = b"".join(line + b"\n" for line in lines)
    reader = _Reader(Path(where), one_based=False, empty_is_row=True, room=None)
    reader.header, reader.source, reader.lines = (len(lines), n_features, MOST_IDS), "the model reads", first - 1
    block = _Block(len(text))
    block.text[:] = text
    block.whole = block.filled = len(text)
    reader.take(block, reader.parse(block), 1.0)
    return reader.part().X


@contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], Callable[[], float]]]:
    """The bytes of a file, unpacked where its name says that it is packed, and how much of it is read already."""
    try:
        with path.open("rb", buffering=0) as raw:
            size = os.fstat(raw.fileno()).st_size or 1
            unpack = PACKED.get(path.suffix.lower())
            with unpack(raw, "rb") if unpack else raw as stream:
                yield stream, lambda: raw.tell() / size
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile) or error.strerror is None:  # what gzip and bz2 raise for other bytes
            raise DataError(f"{path}: not a {path.suffix} file, or a damaged one ({error})") from error
        raise DataError(f"{path}: {error.strerror}") from error


class _Block:
    """Room for one block of text and for what is read from it. Memory that is not touched costs nothing."""

    def __init__(self, size: int) -> None:
        self.text = bytearray(size)
        self.first = 0  # where the first line begins
        self.whole = 0  # where the last whole line ends
        self.filled = 0  # where the text ends
        self.labels = np.empty(size // 2 + 2, np.int32)
        self.label_counts = np.empty(size + 1, np.int32)
        self.ids = np.empty(size // 4 + 2, np.int32)
        self.values = np.empty(size // 4 + 2, np.float32)
        self.id_counts = np.empty(size + 1, np.int32)
        self.hard = np.empty((size // 4 + 2, 3), np.int64)

    def fill(self, stream: IO[bytes], rest: bytes) -> bool:
        """Take whole lines, beginning with `rest`; whether the stream has ended."""
        self.first = 0
        self.text[: len(rest)] = rest
        self.filled = len(rest)
        with memoryview(self.text) as view:
            while self.filled < len(view) - 1:  # one byte is kept for a line feed that is missing at the end
                got = stream.readinto(view[self.filled : -1])  # type: ignore[attr-defined]
                if not got:
                    if self.filled and self.text[self.filled - 1] != ord("\n"):
                        self.text[self.filled] = ord("\n")
                        self.filled += 1
                    self.whole = self.filled
                    return True
                self.filled += got
        self.whole = self.text.rfind(b"\n", 0, self.filled) + 1
        return False


class _Reader:
    """The state of reading one file: what the header says, and all that was read so far."""

    def __init__(self, path: Path, one_based: bool, empty_is_row: bool, room: Path | None) -> None:
        self.path, self.base, self.empty_is_row = path, int(one_based), empty_is_row
        self.header: tuple[int, int, int] | None = None
        self.source = "the first line of the file says"
        self.labels, self.ids, self.values = (Growing(kind, room) for kind in (np.int32, np.int32, np.float32))
        self.label_counts, self.id_counts = Growing(np.int32), Growing(np.int32)
        self.lines = self.empty = self.bytes = 0
        self.most_label = self.most_feature = -1

    def begin(self, block: _Block) -> None:
        """Look at the beginning of the file; take the header away."""
        if not block.filled:
            raise DataError(f"{self.path}: the file is empty; expected lines like '0,2 1:0.5 4:1'")
        line = bytes(block.text[: block.text.find(b"\n") + 1])
        skip = len(BOM) if line.startswith(BOM) else 0
        if found := HEADER.fullmatch(line[skip:]):
            self.header = (int(found[1]), int(found[2]), int(found[3]))
            if max(self.header) > MOST_IDS:
                raise DataError(f"{self.path}:1: the header says {max(self.header)}; at most {MOST_IDS} is possible")
            skip = len(line)
            self.lines = 1
        block.first = skip

    def parse(self, block: _Block) -> tuple[int, ...]:
        from holobind.data import _parser as kernel

        _, features, labels = self.header or (0, MOST_IDS, MOST_IDS)
        return kernel.parse(
            np.frombuffer(block.text, np.uint8),
            block.first,
            block.whole,
            self.base,
            features,
            labels,
            self.empty_is_row,
            block.labels,
            block.label_counts,
            block.ids,
            block.values,
            block.id_counts,
            block.hard,
        )

    def take(self, block: _Block, parsed: tuple[int, ...], done: float) -> None:
        """Append what was read from the next block."""
        code, at, rows, labels, entries, hard, lines, empty, most_label, most_feature = parsed
        for entry, first, last in block.hard[:hard].tolist():
            text = bytes(block.text[first:last])
            value = nearest_float32(text.decode())
            if not np.isfinite(value):
                line = self.lines + block.text.count(b"\n", block.first, first) + 1
                raise self.wrong(line, f"the value {_shown(text)} is too large for float32")
            block.values[entry] = value
        if code:
            raise self.mistake(block.text, code, at, self.lines + lines + 1)
        left = 1 / max(done, 1e-3) - 1
        self.labels.add(block.labels[:labels], left)
        self.ids.add(block.ids[:entries], left)
        self.values.add(block.values[:entries], left)
        self.label_counts.add(block.label_counts[:rows], left)
        self.id_counts.add(block.id_counts[:rows], left)
        self.lines += lines
        self.empty += empty
        self.bytes += block.whole
        self.most_label = max(self.most_label, most_label)
        self.most_feature = max(self.most_feature, most_feature)

    def part(self) -> Split:
        points = self.label_counts.used
        _, features, labels = self.header or (0, self.most_feature + 1, self.most_label + 1)
        arrays = {
            "values": self.values.taken(),
            "ids": self.ids.taken(),
            "id_ends": _ends(self.id_counts.taken()),
            "labels": self.labels.taken(),
            "label_ends": _ends(self.label_counts.taken()),
        }
        return _part(arrays, (points, features, labels))

    def wrong(self, line: int, what: str, kind: type[DataError] = DataError) -> DataError:
        return kind(f"{self.path}:{line}: {what}")

    def mistake(self, text: bytearray, code: int, at: int, line: int) -> DataError:
        from holobind.data import _parser as kernel

        token = re.compile(rb"[^ \t\r\n]*").match(text, at)
        said = token[0] if token else b""
        if b"\0" in said:
            return self.wrong(line, f"a binary file, with {_shown(said)}; expected lines like '0,2 1:0.5 4:1'")
        _, features, labels = self.header or (0, MOST_IDS, MOST_IDS)
        source = self.source if self.header else "ids have 31 bits, so there are at most"
        if code == kernel.LABEL_RANGE:
            label = _shown(said.split(b",")[0])
            hint = "; ids start at 1 here" if self.base else ""
            return self.wrong(
                line,
                f"label {label} is outside this space of {labels} labels ({self.base} to {labels - 1 + self.base}); "
                f"{source} {labels}{hint}",
                LabelError,
            )
        if code == kernel.FEATURE_RANGE:
            feature = _shown(said.split(b":")[0])
            return self.wrong(
                line,
                f"feature {feature} is outside this space of {features} features "
                f"({self.base} to {features - 1 + self.base}); {source} {features}",
            )
        if code == kernel.DUPLICATE:
            row = re.compile(rb"[^\n#]*").match(text, at)
            seen: set[int] = set()
            for feature in re.findall(rb"[ \t+](\d+):|^\+?(\d+):", row[0] if row else b""):
                number = int(feature[0] or feature[1])
                if number in seen:
                    return self.wrong(line, f"feature {number} occurs twice; a point has one value for each feature")
                seen.add(number)
        if code == kernel.LABEL_NUMBER:
            return self.wrong(line, f"{_shown(said)} is neither labels like '0,2' nor a feature like '4:0.5'")
        if code == kernel.VALUE_NUMBER:
            return self.wrong(line, f"{_shown(said)} does not end in a finite number; expected a feature like '4:0.5'")
        return self.wrong(line, f"expected a feature like '4:0.5' after the labels, found {_shown(said)}")


def _read(
    path: Path, one_based: bool, progress: ProgressCallback | None, empty_is_row: bool = False, room: Path | None = None
) -> tuple[Split, bool, int]:
    if room is not None:
        room.mkdir(parents=True, exist_ok=True)
    reader = _Reader(path, one_based, empty_is_row, room)
    with opened(path) as (stream, done):
        try:
            _stream(reader, stream, done, progress)
        except BROKEN as error:
            what = f"the {path.suffix} data is damaged or ends too early ({error})"
            raise reader.wrong(reader.lines + 1, what) from error
    rows = reader.label_counts.used
    if reader.header and rows != reader.header[0]:
        if rows + reader.empty == reader.header[0] and not empty_is_row:
            return _read(path, one_based, progress, empty_is_row=True, room=room)
        raise reader.wrong(1, f"the header says {reader.header[0]} points, but the file has {rows}")
    if not rows and not reader.header:
        raise DataError(f"{path}: there are no points; expected lines like '0,2 1:0.5 4:1'")
    return reader.part(), reader.header is not None, reader.bytes


def _stream(reader: _Reader, stream: IO[bytes], done: Callable[[], float], progress: ProgressCallback | None) -> None:
    block, ended = _filled(_Block(BLOCK), stream, b"")
    reader.begin(block)
    if ended:
        reader.take(block, reader.parse(block), 1.0)
        return
    threads = min(os.cpu_count() or 1, 8)
    free = [_Block(BLOCK) for _ in range(threads)]
    busy: deque[tuple[_Block, Future[tuple[int, ...]], float]] = deque()

    def finish() -> None:
        block, parsed, share = busy.popleft()
        reader.take(block, parsed.result(), share)
        free.append(block)
        if progress:
            progress(f"reading {reader.path.name}", share)

    with ThreadPoolExecutor(threads) as pool:
        while block.whole:
            busy.append((block, pool.submit(reader.parse, block), done()))
            if ended:
                break
            if not free:
                finish()
            block, ended = _filled(free.pop(), stream, bytes(block.text[block.whole : block.filled]))
        while busy:
            finish()
    if not block.whole and not ended:
        raise reader.wrong(reader.lines + 1, f"a line of more than {LONGEST_LINE} bytes; is this the right file?")


def _filled(block: _Block, stream: IO[bytes], rest: bytes) -> tuple[_Block, bool]:
    """Whole lines in `block`, or in a larger one if it cannot hold a line, and whether the stream has ended.

    There are none if nothing is left, or if a line is too long for any block.
    """
    if len(rest) + 2 > len(block.text):
        block = _Block(2 * len(rest) + 2)
    ended = block.fill(stream, rest)
    while not block.whole and not ended and len(block.text) < LONGEST_LINE:
        larger = _Block(2 * len(block.text))
        ended = larger.fill(stream, bytes(block.text[: block.filled]))
        block = larger
    return block, ended


def _ends(counts: NDArray[np.int32]) -> NDArray[np.int64]:
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


def _shown(text: bytes) -> str:
    """A piece of a file in a message: one line, not too long, whatever bytes it has."""
    return repr(text[:40].decode("utf-8", "backslashreplace") + ("..." if len(text) > 40 else ""))


def nearest_float32(text: str) -> np.float32:
    """The float32 nearest to a decimal number, ties to the even one: exact, where float() would round twice."""
    near = float(text)
    with np.errstate(over="ignore"):
        guess = np.float32(near)
        below, above = (np.nextafter(guess, np.float32(side * np.inf)) for side in (-1, 1))
    if near == 0 or not np.isfinite(near):
        return np.float32(near)
    if np.isinf(guess):
        # Half a step above the largest: from there on a number is infinite.
        limit = Fraction(2**128) - Fraction(2**103)
        largest = np.copysign(np.finfo(np.float32).max, np.float32(np.sign(near)))
        return largest if abs(Fraction(text)) < limit else guess
    exact = Fraction(text)
    choices = [c for c in (guess, below, above) if np.isfinite(c)]
    return min(choices, key=lambda c: (abs(Fraction(float(c)) - exact), int(np.float32(c).view(np.uint32)) & 1))


def write(path: Path, part: Split, *, comment_header: bool = False) -> None:
    """Write one part, packed where the name says so. Reading it back gives the same matrices, bit for bit."""
    pack = PACKED.get(path.suffix.lower())
    header = f"{len(part)} {part.X.shape[1]} {part.Y.shape[1]}\n"
    with stored.replacing(path) as raw, pack(raw, "wb") if pack else _unclosed(raw) as file:
        file.write((("# " if comment_header else "") + header).encode())
        for first in range(0, len(part), 4096):
            file.write(_lines(part.X[first : first + 4096], part.Y[first : first + 4096]))


@contextmanager
def _unclosed(file: IO[bytes]) -> Iterator[IO[bytes]]:
    yield file


def _lines(X: CsrArray, Y: CsrArray) -> bytes:
    # numpy prints a float32 with the fewest digits that tell it from its neighbours.
    distinct, where = np.unique(X.data.view(np.int32), return_inverse=True)
    printed = np.array([v.removesuffix(".0") for v in distinct.view(np.float32).astype(np.str_).tolist()], object)
    features = [f"{f}:{v}" for f, v in zip(X.indices.tolist(), printed[where].tolist(), strict=True)]
    labels = list(map(str, Y.indices.tolist()))
    x, y = X.indptr.tolist(), Y.indptr.tolist()
    rows = (
        f"{','.join(labels[y[i] : y[i + 1]])} {' '.join(features[x[i] : x[i + 1]])}".rstrip(" ") or " "
        for i in range(len(x) - 1)
    )
    return ("\n".join(rows) + "\n").encode()
