"""The datasets of the tables: those found on disk, by name, and two corpora made from installed Python code.

A folder of datasets has one folder for each dataset. A folder is used if its name is that of a dataset of the paper, in
any spelling that the library knows (EURLex-4K, eurlex_4k), or one of `OTHER_DATASETS`. `--data DIR` names the folder
of datasets; without it, the environment variable HOLOBIND_DATA does. Datasets fetched by `holobind data fetch` are
always used, and so are the two corpora made from installed Python code.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import holobind as hb
from holobind.data import PUBLISHED, Dataset, Published
from holobind.data.cache import cache_dir
from holobind.errors import HolobindError, OptionError

# Datasets that the paper does not have, and the note that their numbers need.
OTHER_DATASETS = {
    "mediamill-reduced": "the public reduction of Mediamill, not the paper's dataset",
    "cooking-stackexchange": "",
    "tibkat-core-en": "",
    "python-calls": "functions of the installed standard library",
    "python-calls-torch": "functions of the installed torch",
}
PYTHON_PACKAGES = {"python-calls": "stdlib", "python-calls-torch": "torch"}  # the code these are made from


def data_folder() -> Path:
    """The folder of real datasets: $HOLOBIND_DATA, or `../shared/data` relative to the repository. It may not exist."""
    return Path(os.environ.get("HOLOBIND_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")


def chosen_folder(data: Path | None) -> Path | None:
    """The folder of `--data`, or else `data_folder()`; None if neither is given and the default does not exist."""
    if data is not None:
        return data
    folder = data_folder()
    return folder if folder.is_dir() or os.environ.get("HOLOBIND_DATA") else None


@dataclass(frozen=True)
class Source:
    """Where a dataset comes from.

    path        its folder, or None for a corpus made from Python code
    published   the published sizes of a dataset of the paper, else None
    """

    name: str
    path: Path | None
    published: Published | None = None
    note: str = ""

    def load(self) -> Dataset:
        """Load the dataset; it must have a test split."""
        if self.path is None:
            return hb.data.python_calls((PYTHON_PACKAGES[self.name],))
        dataset = hb.data.load(self.path)
        if dataset.test is None:
            raise OptionError(f"--data: {self.path} has no test split; a table needs a train and a test split")
        return dataset

    def remark(self, dataset: Dataset) -> str:
        """How the dataset differs from the paper's, or an empty text."""
        published = self.published
        if published is None or dataset.test is None:
            return self.note
        sizes = len(dataset.train), len(dataset.test), dataset.n_features, dataset.n_labels
        if sizes == (published.train, published.test, published.features, published.labels):
            return self.note
        n_train, n_test, n_features, n_labels = (f"{size:,}" for size in sizes)
        return f"not the published sizes: {n_train} + {n_test} points, {n_features} features, {n_labels} labels"


def available(folder: Path | None = None) -> list[Source]:
    """The fetched datasets and those in `folder`, the paper's first and in its order."""
    sources: dict[str, Source] = {}
    fetched = cache_dir() / "datasets"
    if folder is not None and not folder.is_dir():
        raise OptionError(f"--data {folder} is not a folder; name one that holds a folder for each dataset")
    for place in (fetched, folder):
        if place is None or not place.is_dir():
            continue
        here: dict[str, Source] = {}
        for path in sorted(path for path in place.iterdir() if path.is_dir()):
            source = _by_name(path)
            if source is None:
                continue
            if source.name in here:
                raise OptionError(
                    f"--data: both {here[source.name].path} and {path} are {source.name}; keep one of them"
                )
            here[source.name] = source
        sources |= here
    order = [published.name for published in PUBLISHED.values()] + list(OTHER_DATASETS)
    return sorted(sources.values(), key=lambda source: order.index(source.name))


def chosen(folder: Path | None = None, only: Sequence[str] | None = None) -> list[Source]:
    """All available datasets and the corpora made from Python code, or those named in `only`, in any spelling."""
    sources = available(folder)
    names = {source.name for source in sources}
    sources += [Source(name, None, note=OTHER_DATASETS[name]) for name in PYTHON_PACKAGES if name not in names]
    if not only:
        return sources
    wanted = {source.name if (source := _by_name(Path(name))) else name for name in only}
    if unknown := wanted - {source.name for source in sources}:
        raise OptionError(
            f"--only {', '.join(sorted(unknown))}: no such dataset; there are "
            f"{', '.join(source.name for source in sources)}; --data names a folder with more"
        )
    return [source for source in sources if source.name in wanted]


def _by_name(path: Path) -> Source | None:
    key = path.name.lower().replace("_", "-")
    if key in OTHER_DATASETS:
        return Source(key, path, note=OTHER_DATASETS[key])
    try:
        published = hb.data.published(path.name)
    except HolobindError:
        return None
    return Source(published.name, path, published)
