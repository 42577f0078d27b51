"""`python-calls`: a real multi-label corpus, built from installed Python code.

A point is a function. Its text is its name, its arguments and its docstring. Its labels are the names that it calls, of
those that at least two functions of the corpus call. A hash of the path of a module decides whether its functions are
in the training or the test split; split by package, a hash of the path of its folder does, so that modules of one
package are never on both sides. The same code always gives the same corpus, in the same order.
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

from holobind._checks import one_of
from holobind._types import ProgressCallback
from holobind.data.cache import cache_dir, skipped
from holobind.data.csr import from_label_ids
from holobind.data.dataset import Dataset, Split
from holobind.data.formats import load
from holobind.data.tfidf import Tfidf
from holobind.data.writing import write
from holobind.errors import DataError, FileError

STDLIB = "stdlib"
CORPUS_VERSION = 1  # changes with the definition of the corpus, so that cached corpora of another version are not used
SKIPPED_FOLDERS = {
    "__pycache__",
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idle_test",
    "lib2to3",
    "turtledemo",
}
TEST_FRACTION = 0.2  # of the modules
SPLIT_UNITS = ("module", "package")
MIN_CALLERS = 2  # functions that call a name, for it to be a label
MODULES_PER_REPORT = 50


def python_calls(
    packages: Sequence[str] = (STDLIB,),
    *,
    split_by: str = "module",
    cache: bool = True,
    on_progress: ProgressCallback | None = None,
) -> Dataset:
    """Build the corpus from installed packages, or load it from the cache.

    packages   names as in `import`; "stdlib" is the standard library
    split_by   "module" or "package": what is in the training or in the test split as a whole

        dataset = python_calls(["torch", "scipy"])
        dataset.train.texts[0], dataset.label_names
    """
    one_of("python_calls", "split_by", split_by, SPLIT_UNITS)
    files = [(name, file) for package in packages for name, file in _modules(package)]
    if not files:
        raise DataError(f"there is no Python source in {', '.join(packages)}")
    state = [
        CORPUS_VERSION,
        sys.version_info[:2],
        [(name, f.stat().st_size, f.stat().st_mtime_ns) for name, f in files],
    ]
    if split_by != "module":
        state.append(split_by)
    key = hashlib.blake2b(json.dumps(state).encode(), digest_size=8).hexdigest()
    folder = cache_dir() / "corpora" / f"python-calls-{key}"
    if cache and folder.is_dir():
        try:
            return replace(load(folder), name="python-calls")
        except DataError:  # the cached corpus is damaged
            shutil.rmtree(folder, ignore_errors=True)
    dataset = _build(files, split_by, on_progress)
    if cache:
        try:
            write(dataset, folder, "npz")
        except (DataError, FileError) as error:  # a cache that cannot be written is not an error
            skipped(error)
            shutil.rmtree(folder, ignore_errors=True)
    return dataset


def _modules(package: str) -> Iterator[tuple[str, Path]]:
    """The modules of a package as (path relative to the search path, file), sorted by path."""
    if package == STDLIB:
        roots, base = [Path(sysconfig.get_path("stdlib"))], Path(sysconfig.get_path("stdlib"))
    else:
        # find_spec imports the parents of a dotted name, but building a corpus must not run the code that it reads.
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
            if not SKIPPED_FOLDERS & set(name.split("/")[:-1]):
                yield name, file


def _build(files: list[tuple[str, Path]], split_by: str, on_progress: ProgressCallback | None) -> Dataset:
    found: dict[str, list[tuple[str, set[str]]]] = {"train": [], "test": []}
    for n_done, (module, file) in enumerate(files):
        found[split_of(module if split_by == "module" else package_of(module))].extend(functions(file.read_bytes()))
        if on_progress and n_done % MODULES_PER_REPORT == 0:
            on_progress("reading Python modules", n_done / len(files))
    n_callers = Counter(call for points in found.values() for _, calls in points for call in calls)
    label_names = sorted(name for name, n in n_callers.items() if n >= MIN_CALLERS)
    label_ids = {name: i for i, name in enumerate(label_names)}
    kept = {
        name: [(text, ids) for text, calls in points if (ids := sorted(label_ids[c] for c in calls if c in label_ids))]
        for name, points in found.items()
    }
    if not kept["train"] or not kept["test"]:
        raise DataError(f"{len(files)} modules are too few for a corpus: a split would have no points; add packages")
    texts = {name: [text for text, _ in points] for name, points in kept.items()}
    if on_progress:
        on_progress("computing tf-idf", 1.0)
    tfidf, X = Tfidf.fit(texts["train"], words_only=True)  # belongs to the definition of the corpus
    Y, Y_test = (from_label_ids([ids for _, ids in kept[name]], len(label_names)) for name in ("train", "test"))
    test = Split(tfidf.transform(texts["test"]), Y_test, texts["test"])
    return Dataset(Split(X, Y, texts["train"]), test, label_names, tfidf.words, "python-calls", tfidf)


def package_of(module: str) -> str:
    """The folder of a module, as a path relative to the search path; a module that is in no folder is its own.

    >>> package_of("json/decoder.py"), package_of("torch/nn/modules/conv.py"), package_of("ast.py")
    ('json', 'torch/nn/modules', 'ast.py')
    """
    return module.rpartition("/")[0] or module


def split_of(path: str) -> str:
    """The split of a module or a package, decided by a hash of its path."""
    uniform = int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), "big") / 2**64
    return "test" if uniform < TEST_FRACTION else "train"


def functions(source: bytes) -> list[tuple[str, set[str]]]:
    """(text, names it calls) of every function of a module; empty if this version of Python cannot parse it."""
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
    args = node.args
    arguments = [a.arg for a in (*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg) if a]
    names = [node.name, *(a for a in arguments if a not in ("self", "cls"))]
    words = re.sub(r"_|(?<=[a-z0-9])(?=[A-Z])", " ", " ".join(names))
    # A docstring may contain a lone surrogate, which UTF-8 cannot encode.
    text = f"{words} {ast.get_docstring(node) or ''}".encode("utf-8", "replace").decode()
    return " ".join(text.split())


def _calls(node: ast.AST) -> Iterator[str]:
    """The names that a function calls, of a dotted name the last component. Nested functions are skipped."""
    pending: list[ast.AST] = list(ast.iter_child_nodes(node))
    while pending:
        inner = pending.pop()
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(inner, ast.Call):
            if isinstance(inner.func, ast.Name):
                yield inner.func.id
            elif isinstance(inner.func, ast.Attribute):
                yield inner.func.attr
        pending.extend(ast.iter_child_nodes(inner))
