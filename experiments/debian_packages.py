"""Three datasets that no default was tuned on, from the package lists of a Debian system: JSONL for `bench_rivals.py`.

    .venv/bin/python experiments/debian_packages.py OUT          # after `apt-get update`
    .venv/bin/python benchmarks/bench_rivals.py --data OUT --only debian-tags debian-sections debian-maintainers

A text is the short description of a package. Its labels are

    debian-tags          its debtags (several), with the package's name in the text
    debian-sections      its section (one)
    debian-maintainers   its maintainer (one), with the package's name in the text

A tenth of the source packages is the test split, so that packages of one source are never on both sides. The last line
printed is JSON.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

LISTS = Path("/var/lib/apt/lists")
READER = "/usr/lib/apt/apt-helper"  # reads lists in any compression
TEST_FRACTION = 10  # one source package in so many
Package = dict[str, str]


def packages(lists: Path) -> Iterator[Package]:
    """The stanzas of the largest list, which is that of the release, with continuation lines joined."""
    found = sorted(lists.glob("*_Packages*"), key=lambda path: path.stat().st_size)
    if not found:
        raise SystemExit(f"debian_packages: no package list in {lists}; run apt-get update first")
    text = subprocess.run([READER, "cat-file", str(found[-1])], capture_output=True, check=True).stdout
    for stanza in text.decode("utf-8", "replace").split("\n\n"):
        fields = re.findall(r"^([\w-]+):((?:.*)(?:\n .*)*)", stanza, re.MULTILINE)
        yield {name: " ".join(value.split()) for name, value in fields}


def with_name(package: Package) -> str:
    return f"{package['Package'].replace('-', ' ')}. {package['Description']}"


def tags(package: Package) -> list[str]:
    return sorted({tag.strip() for tag in package.get("Tag", "").split(",") if "::" in tag})


DATASETS: dict[str, tuple[Callable[[Package], str], Callable[[Package], list[str]]]] = {
    "debian-tags": (with_name, tags),
    "debian-sections": (lambda package: package["Description"], lambda package: [package["Section"]]),
    "debian-maintainers": (with_name, lambda package: [package["Maintainer"]]),
}


def is_test(package: Package) -> bool:
    source = package.get("Source", package["Package"]).split()[0]
    return int(hashlib.md5(source.encode(), usedforsecurity=False).hexdigest(), 16) % TEST_FRACTION == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--lists", type=Path, default=LISTS, help="folder of package lists (default: %(default)s)")
    options = parser.parse_args()
    wanted = ("Package", "Description", "Section", "Maintainer")
    complete = [package for package in packages(options.lists) if all(package.get(name) for name in wanted)]
    sizes = {}
    for name, (text, labels) in DATASETS.items():
        folder = options.out / name
        folder.mkdir(parents=True, exist_ok=True)
        rows: dict[str, list[str]] = {"train": [], "test": []}
        for package in complete:
            if found := labels(package):
                line = json.dumps({"text": text(package), "labels": found})
                rows["test" if is_test(package) else "train"].append(line)
        for split, lines in rows.items():
            (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        sizes[name] = {split: len(lines) for split, lines in rows.items()}
    sys.stdout.write(json.dumps({"rows": sizes}) + "\n")


if __name__ == "__main__":
    main()
