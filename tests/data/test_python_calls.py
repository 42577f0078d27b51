"""The corpus that is built from Python code."""

import sys

import pytest
from helpers.twins import identical

from holobind import data
from holobind.data import Tfidf
from holobind.data.python_calls import functions, split_of
from holobind.errors import DataError, OptionError


def test_a_function_is_its_name_arguments_docstring_and_calls():
    source = b'''
class A:
    async def readCsv_file(self, path, *rows, sep=";", **more):
        """Read   a file.

        Well."""
        def inner(x):
            return hidden(x)
        return [pandas.io.read(p) for p in sorted(path)](1)(print)
'''
    assert functions(source) == [
        ("read Csv file path rows sep more Read a file. Well.", {"read", "sorted"}),
        ("inner x", {"hidden"}),
    ]


@pytest.mark.parametrize("source", [b"def f(:", b"\0", b"\xff\xfe", b"def f():\n\treturn 1\n        return 2"])
def test_text_that_is_not_python_has_no_functions(source):
    assert functions(source) == []


def test_a_fifth_of_the_modules_is_in_the_test_split():
    assert sum(split_of(f"package/module{i}.py") == "test" for i in range(10_000)) == pytest.approx(2000, rel=0.1)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that raises an error if it is imported."""
    folder = tmp_path / "toypackage"
    (folder / "tests").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    for i in range(40):
        (folder / f"module{i}.py").write_text(f"def work{i}(x):\n    'Does {i}.'\n    return open(str(x), rare{i}())\n")
    (folder / "tests" / "test_it.py").write_text("def test_it():\n    open(str(1))\n")
    (folder / "broken.py").write_text("def (")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_the_corpus_follows_its_definition(package):
    dataset = data.python_calls(["toypackage"], cache=False)
    assert dataset.label_names == ["open", "str"]  # rare0 to rare39 are called once
    texts = dataset.train.texts + dataset.test.texts
    assert sorted(texts) == sorted(f"work{i} x Does {i}." for i in range(40))
    for name, split in dataset.splits.items():
        modules = [f"toypackage/module{text.split()[0].removeprefix('work')}.py" for text in split.texts]
        assert {split_of(m) for m in modules} == {name} and modules == sorted(modules)
    assert "toypackage" not in sys.modules
    tfidf, X = Tfidf.fit(dataset.train.texts, words_only=True)
    assert dataset.feature_names == tfidf.words and identical(dataset.train.X, X)


def test_the_corpus_is_the_same_every_time_and_cached(package, monkeypatch, tmp_path):
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "cache"))
    first, second = data.python_calls(["toypackage"]), data.python_calls(["toypackage"])
    assert len(list((tmp_path / "cache" / "corpora").iterdir())) == 1
    for a, b in zip(first.splits.values(), second.splits.values(), strict=True):
        assert identical(a.X, b.X) and identical(a.Y, b.Y) and a.texts == b.texts
    assert first.label_names == second.label_names and first.name == second.name == "python-calls"
    stored = next((tmp_path / "cache" / "corpora").iterdir())
    (stored / "X.trn.npz").write_bytes(b"damaged")
    assert identical(data.python_calls(["toypackage"]).train.X, first.train.X)
    (package / "module0.py").write_text("def other():\n    return open(str(1))\n")
    changed = data.python_calls(["toypackage"])
    assert "other" in changed.train.texts + changed.test.texts


@pytest.mark.parametrize("name", ["no_such_package_anywhere", "os.path", "", "../etc"])
def test_a_package_that_is_not_installed_is_an_error(name):
    with pytest.raises(DataError, match="is not installed"):
        data.python_calls([name])


def test_too_little_code_is_an_error():
    with pytest.raises(DataError, match="too few"):
        data.python_calls(["this"], cache=False)
    with pytest.raises(DataError, match="no Python source"):
        data.python_calls(["sys"], cache=False)


def test_the_labels_of_an_installed_package_have_a_long_tail():
    dataset = data.python_calls(["scipy"])
    found = data.statistics(dataset)
    assert found["train points"] > 3000 and found["labels"] > 1000
    assert found["tail fraction"] > 0.5 and found["most frequent label"] > 300


def test_packages_are_in_one_split_as_a_whole(package, monkeypatch, tmp_path):
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "cache"))
    for i in range(20):
        folder = package / f"part{i}"
        folder.mkdir()
        for j in range(3):
            (folder / f"m{j}.py").write_text(f"def job{i}(x{j}):\n    return open(str(x{j}))\n")
    dataset = data.python_calls(["toypackage"], split_by="package")
    parts = [{text.split()[0] for text in split.texts if text.startswith("job")} for split in dataset.splits.values()]
    assert parts[0] and parts[1] and not parts[0] & parts[1] and len(parts[0] | parts[1]) == 20
    by_module = data.python_calls(["toypackage"])  # another corpus in the cache
    parts = [{text.split()[0] for text in split.texts if text.startswith("job")} for split in by_module.splits.values()]
    assert parts[0] & parts[1]
    with pytest.raises(OptionError, match="split_by must be one of 'module', 'package'"):
        data.python_calls(["toypackage"], split_by="folder")
