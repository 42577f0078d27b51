"""Memory that `data.load` takes for files of documents, as a multiple of their size: usual lines and the worst ones.

    .venv/bin/python benchmarks/bench_text_memory.py

A file has 20 MB. The multiple is of the peak memory of a process that loads it, less that of one that loads two lines.
The last line printed is JSON.
"""

import json
import tempfile
from pathlib import Path

from memory import peak_memory_mb, run_alone

FILE_BYTES = 20_000_000
WORDS = " ".join(f"word{number}" for number in range(40))
LINES = {
    "JSON lines of 300 bytes": ("a.jsonl", json.dumps({"text": WORDS, "labels": ["one", "two"]}) + "\n"),
    "JSON lines of 22 bytes": ("a.jsonl", '{"text":"","label":1}\n'),
    "TSV lines of 300 bytes": ("a.tsv", f"{WORDS}\tone\ttwo\n"),
    "TSV lines of 4 bytes": ("a.tsv", "a\tb\n"),
}


def peak(path: str) -> float:
    import holobind as hb

    hb.data.load(path, cache=False)
    return peak_memory_mb()


def main() -> None:
    multiples = {}
    for name, (file, line) in LINES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / file
            first = '{"text": "a word", "labels": ["b"]}\n' if path.suffix == ".jsonl" else "a word\tb\n"
            found = []
            for n_lines in (2, FILE_BYTES // len(line)):
                path.write_text(first + line * n_lines, encoding="utf-8")
                found.append(run_alone(peak, str(path)))
            multiples[name] = round((found[1] - found[0]) * 2**20 / path.stat().st_size, 1)
            print(f"{name:30} {multiples[name]:6.1f} times the size of the file", flush=True)
    print(json.dumps({"bench": "text_memory", "file bytes": FILE_BYTES, "multiples": multiples}))


if __name__ == "__main__":
    main()
