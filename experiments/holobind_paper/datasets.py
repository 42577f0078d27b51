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


@dataclass(frozen=True)
class Sizes:
    """The sizes of a dataset that the paper does not have.

    words   the mean number of words of a text; 0 where there are no texts
    note    what its numbers need to be read with
    """

    labels: int
    rows: int
    words: int = 0
    note: str = ""


# The sizes of the two corpora of Python code are those of Python 3.11 and torch 2.13.
OTHER_DATASETS = {
    "mediamill-reduced": Sizes(101, 1500, note="the public reduction of Mediamill, not the paper's dataset"),
    "cooking-stackexchange": Sizes(736, 12_404, 9),
    "tibkat-core-en": Sizes(17_569, 24_164, 100),
    "gutenberg-lcsh": Sizes(42_131, 70_716, 15),
    "yso-en": Sizes(25_147, 640_266, 10),
    "python-calls": Sizes(3_984, 10_955, 30, "functions of the installed standard library"),
    "python-calls-torch": Sizes(12_320, 30_157, 30, "functions of the installed torch"),
}
TEXT_FILES = ("*text*", "*.jsonl*", "*.tsv*")  # names of files with texts
WORDS_OF_PUBLISHED_TEXTS = 200  # a rough mean, for the estimate of times
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

    @property
    def note(self) -> str:
        return OTHER_DATASETS[self.name].note if self.name in OTHER_DATASETS else ""

    @property
    def labels(self) -> int:
        """The number of labels as published: it decides d', before the dataset is loaded."""
        return self.published.labels if self.published else OTHER_DATASETS[self.name].labels

    @property
    def rows(self) -> int:
        """The number of training rows as published."""
        return self.published.train if self.published else OTHER_DATASETS[self.name].rows

    @property
    def words(self) -> int:
        """The mean number of words of a text; 0 where the dataset has no texts."""
        if self.name in OTHER_DATASETS:
            return OTHER_DATASETS[self.name].words
        has_texts = self.path is not None and any(any(self.path.glob(name)) for name in TEXT_FILES)
        return WORDS_OF_PUBLISHED_TEXTS if has_texts else 0

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
    sources += [Source(name, None) for name in PYTHON_PACKAGES if name not in names]
    if not only:
        return sources
    wanted = {source.name if (source := _by_name(Path(name))) else name for name in only}
    if unknown := wanted - {source.name for source in sources}:
        raise OptionError(
            f"--only {', '.join(sorted(unknown))}: no such dataset; there are "
            f"{', '.join(source.name for source in sources)}; --data names a folder with more"
        )
    return [source for source in sources if source.name in wanted]


def by_name(name: str) -> Source:
    """A dataset by its name in the tables, wherever its data is: for a page that is made from stored cells."""
    return Source(name, None) if name in OTHER_DATASETS else Source(name, None, hb.data.published(name))


def _by_name(path: Path) -> Source | None:
    key = path.name.lower().replace("_", "-")
    if key in OTHER_DATASETS:
        return Source(key, path)
    try:
        published = hb.data.published(path.name)
    except HolobindError:
        return None
    return Source(published.name, path, published)
