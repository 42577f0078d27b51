"""Small datasets and small networks for the tables of trained networks."""

import pytest
from holobind_paper import jobs, training

import holobind as hb

SMALL_DATASETS = {"Bibtex": "Bibtex", "Delicious": "delicious"}  # name and folder


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder of two small datasets in the repository's layout; networks have two hidden layers of 16."""
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "cache"))
    training.load.cache_clear()
    for name, folder in SMALL_DATASETS.items():
        hb.data.write(hb.data.synthetic(name, scale=0.03), tmp_path / "data" / folder, "xml")
    monkeypatch.setattr(jobs, "TRAIN_OPTIONS", jobs.TRAIN_OPTIONS | {"hidden": (16, 16)})
    monkeypatch.setattr(jobs, "paper_dim", lambda n_labels: 20)
    yield tmp_path / "data"
    training.load.cache_clear()


@pytest.fixture
def trained(monkeypatch):
    """The configs that are trained, as pairs of a `ModelConfig` and a `TrainConfig`, in order."""
    configs = []
    learn = training.learn

    def counted(split, model_config, train_config, **options):
        configs.append((model_config, train_config))
        return learn(split, model_config, train_config, **options)

    monkeypatch.setattr(training, "learn", counted)
    return configs
