"""The datasets a table is made of: whatever a user has on disk, by its name, and what installed Python code gives.

`--data DIR` names a folder of folders. A folder is taken if its name is that of a dataset of the paper, in any spelling
the library knows (EURLex-4K, eurlex_4k), or of one of ours below. What was fetched by `holobind data fetch` is found
without it, and the two corpora made from installed Python code are always there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import holobind as hb
from holobind.data import PUBLISHED, Dataset, Published
from holobind.data.cache import directory
from holobind.errors import HolobindError, OptionError

# Not in the paper, or not as it had them; what to say of them beside their numbers.
OURS = {
    "mediamill-reduced": "the public reduction of Mediamill, not the paper's dataset",
    "cooking-stackexchange": "",
    "tibkat-core-en": "",
    "python-calls": "functions of the standard library that is installed",
    "python-calls-torch": "functions of the torch that is installed",
}
MADE = {"python-calls": "stdlib", "python-calls-torch": "torch"}  # from the code of these packages


@dataclass(frozen=True)
class Source:
    """A dataset on disk, or made if `path` is None. `published` is what the paper says of it, or None."""

    name: str
    path: Path | None
    published: Published | None = None
    note: str = ""

    def load(self) -> Dataset:
        """Read it; it must have a test part."""
        if self.path is None:
            return hb.data.python_calls((MADE[self.name],))
        dataset = hb.data.load(self.path)
        if dataset.test is None:
            raise OptionError(f"--data: {self.path} has no test part; a table needs train and test")
        return dataset

    def remark(self, dataset: Dataset) -> str:
        """What to say beside its numbers: that it is not what the paper had, if so."""
        about = self.published
        if about is None or dataset.test is None:
            return self.note
        found = len(dataset.train), len(dataset.test), dataset.n_features, dataset.n_labels
        if found == (about.train, about.test, about.features, about.labels):
            return self.note
        sizes = " + ".join(f"{n:,}" for n in found[:2])
        return f"not the published sizes: {sizes} points, {found[2]:,} features, {found[3]:,} labels"


def available(folder: Path | None = None) -> list[Source]:
    """The datasets in `folder` and those fetched before, the paper's first and in its order."""
    found: dict[str, Source] = {}
    fetched = directory() / "datasets"
    if folder is not None and not folder.is_dir():
        raise OptionError(f"--data {folder} is not a folder; name one that holds a folder for each dataset")
    for place in (fetched, folder):
        if place is None or not place.is_dir():
            continue
        here: dict[str, Source] = {}
        for path in sorted(path for path in place.iterdir() if path.is_dir()):
            source = _known(path)
            if source is None:
                continue
            if source.name in here:
                raise OptionError(
                    f"--data: both {here[source.name].path} and {path} are {source.name}; keep one of them"
                )
            here[source.name] = source
        found |= here
    order = [about.name for about in PUBLISHED.values()] + list(OURS)
    return sorted(found.values(), key=lambda source: order.index(source.name))


def chosen(folder: Path | None = None, only: Sequence[str] | None = None) -> list[Source]:
    """All datasets there are, or those of the names in `only`, in any spelling."""
    found = available(folder)
    there = {source.name for source in found}
    found += [Source(name, None, note=OURS[name]) for name in MADE if name not in there]
    if not only:
        return found
    wanted = {source.name if (source := _known(Path(name))) else name for name in only}
    if unknown := wanted - {source.name for source in found}:
        raise OptionError(
            f"--only {', '.join(sorted(unknown))}: no such dataset; there are "
            f"{', '.join(source.name for source in found)}; --data names a folder with more"
        )
    return [source for source in found if source.name in wanted]


def _known(path: Path) -> Source | None:
    key = path.name.lower().replace("_", "-")
    if key in OURS:
        return Source(key, path, note=OURS[key])
    try:
        about = hb.data.published(path.name)
    except HolobindError:
        return None
    return Source(about.name, path, about)
