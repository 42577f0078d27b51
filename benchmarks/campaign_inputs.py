"""Attacks of benchmarks/campaign.py that run in one process: mutated files, expressions, command lines.

An attack returns "" if it survived, or what went wrong; a crash ends the process.
"""

import contextlib
import functools
import io
import json
import os
import random
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import campaign_loaders as loaders

EXTREMES = (0, 1, -1, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63), 10**6)
WORDS = ("red", "cat", "a", "x1", "first", "name", '"two words"', "'q'", "⊗", "naïve", "30", "0.5", "1e3", "1e400", "")
SIGNS = ("*", "+", "-", "~", "(", ")", " ", "**", "++", "\n", "\t", "\x00", "\ud800", "_", ",", "=", "/")


# Mutations of bytes


def mutate(data: bytes, draw: random.Random) -> bytes:
    """One to four changes: flipped bits, extreme integers, cuts, repeats, insertions."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(changed) + 1)
        match draw.randrange(6):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << draw.randrange(8)
            case 1:
                number = struct.pack("<q", draw.choice(EXTREMES) if draw.random() < 0.5 else draw.getrandbits(62))
                size = draw.choice((2, 4, 8))
                changed[at : at + size] = number[:size]
            case 2:
                del changed[at:]
            case 3:
                del changed[at : at + draw.randint(1, 50)]
            case 4:
                changed[at:at] = changed[at : at + draw.randint(1, 50)]
            case _:
                changed[at:at] = draw.choice(
                    (b"\x00", b"\xff" * 9, b"\n", b"9" * 5000, b"{", b'"', b"1e999", b",", b":")
                )
    return bytes(changed)


def mutate_safetensors(data: bytes, draw: random.Random) -> bytes:
    """A change of the file's structure: of a value in its JSON header, or of the integers of a tensor."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    body = bytearray(data[8 + length :])
    tensors = [name for name in header if name != "__metadata__"]
    if draw.random() < 0.5 and tensors:
        info = header[draw.choice(tensors)]
        first, last = info["data_offsets"]
        width = {"I64": 8, "I32": 4, "F32": 4, "F16": 2, "I16": 2, "U8": 1, "I8": 1}.get(info["dtype"], 1)
        for _ in range(draw.randint(1, 3)):
            if last - first >= width:
                at = first + draw.randrange((last - first) // width) * width
                number = draw.choice(EXTREMES) & (2 ** (8 * width) - 1)
                body[at : at + width] = number.to_bytes(width, "little")
    else:
        described = json.loads(header["__metadata__"]["holobind"])
        _change(described, draw)
        header["__metadata__"]["holobind"] = json.dumps(described)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bytes(body)


def mutate_cache(data: bytes, draw: random.Random) -> bytes:
    """A change of the JSON or of the numbers of a cache file, with a digest that fits."""
    import numpy as np

    from holobind.data import cache

    length = int.from_bytes(data[48:56], "little")
    header, body = json.loads(data[56 : 56 + length]), data[56 + length :]
    arrays = {}
    for name, dtype, n in header["arrays"]:
        size = n * np.dtype(dtype).itemsize
        arrays[name], body = np.frombuffer(body[:size], dtype).copy(), body[size:]
    if draw.random() < 0.4:
        part = draw.choice(("metadata", "arrays"))
        _change(header[part], draw)
    else:
        array = draw.choice([array for array in arrays.values() if len(array)])
        for _ in range(draw.randint(1, 3)):
            limits = np.iinfo(np.int32 if array.dtype.itemsize == 4 else np.int64)
            number = min(max(draw.choice(EXTREMES), limits.min), limits.max)
            array.view(limits.dtype)[draw.randrange(len(array))] = number
    text = json.dumps(header).encode()
    start = cache.MAGIC + cache._digest(text, arrays) + len(text).to_bytes(8, "little") + text
    return start + b"".join(array.tobytes() for array in arrays.values())


def _change(value: Any, draw: random.Random) -> None:
    """Change one value somewhere in nested JSON."""
    while isinstance(value, dict | list) and value:
        key = draw.choice(list(value)) if isinstance(value, dict) else draw.randrange(len(value))
        if isinstance(value[key], dict | list) and value[key] and draw.random() < 0.8:
            value = value[key]
            continue
        value[key] = draw.choice((*EXTREMES, None, "", "x" * 1000, [], {}, [0] * 1000, True, 1e308, "NaN", [[[]]]))
        return


# Attacks


STRUCTURED: dict[str, Callable[[bytes, random.Random], bytes]] = {
    **dict.fromkeys((".model", ".checkpoint", ".vocabulary"), mutate_safetensors),
    ".cache": mutate_cache,
}
STRUCTURED_FRACTION = 0.6  # of the changes of files that have a structure


def attack_file(folder: Path, loader: str, seed: int) -> str:
    """Read a mutated file."""
    draw = random.Random(f"{loader} {seed}")
    change = STRUCTURED.get(Path(loader).suffix, mutate)
    if draw.random() >= STRUCTURED_FRACTION:
        change = mutate
    path = folder / f"changed-{os.getpid()}-{loader}"
    path.write_bytes(change(_content(folder / loader), draw))
    try:
        return _expected_error(lambda: loaders.LOADERS[loader](path))
    finally:
        path.unlink(missing_ok=True)


@functools.cache
def _content(path: Path) -> bytes:
    return path.read_bytes()


def attack_expression(seed: int) -> str:
    """Evaluate and query a random statement."""
    import holobind as hb

    draw = random.Random(seed)
    text = "".join(draw.choice(WORDS if draw.random() < 0.6 else SIGNS) for _ in range(draw.randint(0, 30)))
    if draw.random() < 0.02:
        text *= draw.choice((50, 5000))

    def evaluate() -> None:
        vocabulary = hb.Vocabulary(16, vsa=draw.choice(("unitary-hrr", "hrr-exact", "vtb", "map-c-exact")))
        vector = vocabulary.parse(text)
        if not vector.isfinite().all():
            raise AssertionError(f"{text[:60]!r} has a vector that is not finite")
        if len(vocabulary):
            vocabulary.ask(vector, next(iter(vocabulary)), 2)

    return _expected_error(evaluate)


VERBS: dict[str, tuple[str, ...]] = {
    "evaluate": ("-k", "--json"),
    "predict": ("-k", "--threshold", "--format", "--ids", "--skip-bad", "--out", "--max-uncompressed"),
    "inspect": ("--json",),
    "explain": ("-k", "--label", "--parts", "--json"),
    "report": ("--out", "--objective", "--max-uncompressed", "--json"),
    "restrict": ("--only", "--exclude", "--all", "--out", "--json"),
    "update": ("--out", "--reject", "--max-uncompressed", "--quiet", "--json"),
    "forget": ("--out", "--rows", "--label", "--documents", "--quiet", "--json"),
    "ask": ("--query", "--dim", "--seed", "-k", "--has", "--vocabulary"),
    "data stats": ("--json", "--plot", "--one-based", "--max-uncompressed"),
    "data convert": ("--to", "--compression", "--one-based", "--max-uncompressed", "--json"),
    "data make synthetic": ("--scale", "--seed", "--out", "--to", "--compression", "--json"),
    "data make python-calls": ("--packages", "--out", "--to", "--compression", "--json"),
    "data fetch": ("--file", "--url", "--sha256", "--max-download", "--max-uncompressed", "--allow-http", "--json"),
    "train": ("--dim", "--l2", "--knn-weight", "--network", "--hidden", "--loss", "--seed", "--metric"),
    "compare": ("--seed", "--out", "--max-uncompressed", "--json", "--time-limit"),
    "nonsense": ("--help",),
}


def attack_command(folder: Path, seed: int) -> str:
    """Run a random command line in this process and an empty directory: exit code 0, or 2 with one line on stderr."""
    with tempfile.TemporaryDirectory(dir=folder) as place, contextlib.chdir(place):
        return _attack_command(folder, seed)


def _attack_command(folder: Path, seed: int) -> str:
    from holobind.cli import main as cli

    draw = random.Random(seed)
    values = ("0", "-1", "1e999", "nan", "9" * 5000, "x", "", "\udcff", "12", "0.5", "fc", str(folder / "data.jsonl"))
    files = [str(folder / name) for name in ("data.jsonl", "ridge_knn.model", "names.vocabulary", "missing", "npz", "")]
    verb = draw.choice(list(VERBS))
    arguments = verb.split()
    if verb in ("data make synthetic", "data fetch"):
        arguments.append(draw.choice(("bibtex", *values)))
    elif verb != "data make python-calls":  # without packages it would read the whole standard library
        arguments += [draw.choice(files) for _ in range(draw.randint(0, 3))]
    for _ in range(draw.randint(0, 3)):
        arguments += [draw.choice(VERBS[verb]), *([draw.choice(values)] if draw.random() < 0.8 else [])]
    arguments += {
        **{key: ["--out", "out.safetensors"] for key in ("train", "update", "forget", "restrict")},
        "report": ["--out", "out"],
        "compare": ["--epochs", "1"],
        "data make synthetic": ["--scale", draw.choice(("0.01", "nan", "-1", "0"))],
        "data make python-calls": ["--packages", draw.choice(("typer", "json", "missing", "a.b", ""))],
    }.get(verb, [])
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    before, sys.argv = sys.argv, ["holobind", *arguments]
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(b""))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
        code: Any = 0
    except SystemExit as ended:
        code = ended.code or 0
    except Exception:
        return f"{arguments}: {traceback.format_exc(limit=-3)}"
    finally:
        sys.argv, sys.stdin = before, stdin
    said = [line for line in err.getvalue().splitlines() if not line.startswith("SHA-256 ")]
    if code == 2 and verb != "nonsense" and len(said) != 1 and "Usage" not in err.getvalue():
        return f"{arguments}: exit code 2 with {len(said)} lines: {err.getvalue()[:300]!r}"
    return "" if code in (0, 2) else f"{arguments}: exit code {code}"


def _holobind_error() -> type[Exception]:
    from holobind.errors import HolobindError

    return HolobindError


def _expected_error(action: Callable[[], None]) -> str:
    """Run an action that may raise a HolobindError of one line, for another reason than memory, and nothing else."""
    try:
        action()
    except _holobind_error() as error:
        if "\n" in str(error):
            return f"an error of several lines: {error}"
        return f"out of memory: {error}" if _is_out_of_memory(error) else ""
    except Exception:
        return traceback.format_exc(limit=-4)
    return ""


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether the limit of the process was reached: without a limit, so much memory would have been taken."""
    while error is not None:
        if isinstance(error, MemoryError) or "can't allocate" in str(error) or "Unable to allocate" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
