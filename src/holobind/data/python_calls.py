"""`python-calls`: a real multi-label corpus made from the Python code that is installed anyway.

A point is a function: its text is its name, its arguments and its docstring; its labels are the names it calls, those
that at least two functions of the corpus call. A fifth of the modules, chosen by a hash of their path, is the test
part. The same code gives the same corpus everywhere, in the same order.
"""

import ast
import hashlib
import importlib.util
import json
import re
import shutil
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from holobind._types import ProgressCallback
from holobind.data.cache import directory
from holobind.data.csr import from_label_ids
from holobind.data.dataset import Dataset, Split
from holobind.data.formats import load
from holobind.data.tfidf import Tfidf
from holobind.data.writing import write
from holobind.errors import DataError

STDLIB = "stdlib"
VERSION = 1  # of this config: a cached corpus of another one is not used
SKIPPED = {"__pycache__", "site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3", "turtledemo"}
TEST_SHARE = 0.2


def python_calls(
    packages: Sequence[str] = (STDLIB,), *, cache: bool = True, progress: ProgressCallback | None = None
) -> Dataset:
    """Build the corpus from installed packages by name ("stdlib" is the standard library), or take it from the cache.

    dataset = python_calls(["torch", "scipy"])
    dataset.train.texts[0], dataset.label_names
    """
    files = [(name, file) for package in packages for name, file in _modules(package)]
    if not files:
        raise DataError(f"there is no Python source in {', '.join(packages)}")
    state = [VERSION, sys.version_info[:2], [(name, f.stat().st_size, f.stat().st_mtime_ns) for name, f in files]]
    key = hashlib.blake2b(json.dumps(state).encode(), digest_size=8).hexdigest()
    place = directory() / "corpora" / f"python-calls-{key}"
    if cache and place.is_dir():
        try:
            return replace(load(place), name="python-calls")
        except DataError:  # damaged
            shutil.rmtree(place, ignore_errors=True)
    dataset = _build(files, progress)
    if cache:
        try:
            write(dataset, place, "npz")
        except DataError:  # a cache that cannot be written is no reason to fail
            shutil.rmtree(place, ignore_errors=True)
    return dataset


def _modules(package: str) -> Iterator[tuple[str, Path]]:
    """The modules of a package as (path from where Python finds it, file), in the order of their paths."""
    if package == STDLIB:
        roots, base = [Path(sysconfig.get_path("stdlib"))], Path(sysconfig.get_path("stdlib"))
    else:
        # A dotted name would be imported to be found; a corpus must not run the code it reads.
        spec = importlib.util.find_spec(package) if package.isidentifier() else None
        if spec is None:
            raise DataError(f"package {package!r} is not installed; give the name you import, without dots")
        if spec.submodule_search_locations is None:
            if spec.origin and spec.origin.endswith(".py"):
                yield Path(spec.origin).name, Path(spec.origin)
            return
        roots = [Path(p) for p in spec.submodule_search_locations]
        base = roots[0].parent
    for root in roots:
        found = ((p.relative_to(base).as_posix(), p) for p in root.rglob("*.py") if p.is_relative_to(base))
        for name, file in sorted(found):
            if not SKIPPED & set(name.split("/")[:-1]):
                yield name, file


def _build(files: list[tuple[str, Path]], progress: ProgressCallback | None) -> Dataset:
    points: dict[str, list[tuple[str, set[str]]]] = {"train": [], "test": []}
    for done, (name, file) in enumerate(files):
        points[part_of(name)].extend(functions(file.read_bytes()))
        if progress and done % 50 == 0:
            progress("reading Python modules", done / len(files))
    calls = Counter(call for part in points.values() for _, called in part for call in called)
    names = sorted(name for name, count in calls.items() if count >= 2)
    number = {name: i for i, name in enumerate(names)}
    kept = {
        side: [(text, ids) for text, called in part if (ids := sorted(number[c] for c in called if c in number))]
        for side, part in points.items()
    }
    if not kept["train"] or not kept["test"]:
        raise DataError(f"{len(files)} modules are too few for a corpus: a part would have no points; add packages")
    texts = {side: [text for text, _ in part] for side, part in kept.items()}
    if progress:
        progress("computing tf-idf", 1.0)
    tfidf, X = Tfidf.fit(texts["train"], plain=True)  # part of what this corpus is
    Y, Y_test = (from_label_ids([ids for _, ids in kept[side]], len(names)) for side in ("train", "test"))
    test = Split(tfidf.transform(texts["test"]), Y_test, texts["test"])
    return Dataset(Split(X, Y, texts["train"]), test, names, tfidf.words, "python-calls", tfidf)


def part_of(module: str) -> str:
    """The part that a module belongs to, by a hash of its path alone."""
    chance = int.from_bytes(hashlib.blake2b(module.encode(), digest_size=8).digest(), "big") / 2**64
    return "test" if chance < TEST_SHARE else "train"


def functions(source: bytes) -> list[tuple[str, set[str]]]:
    """(text, names it calls) of every function of a module; none if it is not Python for this version."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []
    return [
        (_text(node), set(_calls(node)))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _text(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    said = node.args
    arguments = [a.arg for a in (*said.posonlyargs, *said.args, said.vararg, *said.kwonlyargs, said.kwarg) if a]
    names = [node.name, *(a for a in arguments if a not in ("self", "cls"))]
    words = re.sub(r"_|(?<=[a-z0-9])(?=[A-Z])", " ", " ".join(names))
    # A lone surrogate in a docstring could not be written as UTF-8.
    text = f"{words} {ast.get_docstring(node) or ''}".encode("utf-8", "replace").decode()
    return " ".join(text.split())


def _calls(node: ast.AST) -> Iterator[str]:
    """The names a function calls itself, by the last part of a dotted one; functions inside it speak for themselves."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(node))
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(inner, ast.Call):
            if isinstance(inner.func, ast.Name):
                yield inner.func.id
            elif isinstance(inner.func, ast.Attribute):
                yield inner.func.attr
        waiting.extend(ast.iter_child_nodes(inner))
