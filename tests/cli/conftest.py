"""Small datasets and models that the tests of several verbs read."""

import pytest

import holobind as hb
from holobind import data


@pytest.fixture(scope="session")
def feature_data(tmp_path_factory):
    """A dataset of features with a test split, labels without names."""
    directory = tmp_path_factory.mktemp("data") / "toy"
    data.write(data.synthetic("bibtex", scale=0.05), directory)
    return directory


@pytest.fixture(scope="session")
def text_data(tmp_path_factory):
    """A dataset of texts with a test split: the calls in functions of two packages."""
    directory = tmp_path_factory.mktemp("data") / "calls"
    data.write(data.python_calls(["typer", "rich"]), directory, "jsonl")
    return directory


@pytest.fixture(scope="session")
def feature_model(feature_data, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "toy.safetensors"
    hb.learn(data.load(feature_data).train, hb.ModelConfig(l2=1.0)).save(path)
    return path


@pytest.fixture(scope="session")
def text_model(text_data, tmp_path_factory):
    dataset = data.load(text_data)
    path = tmp_path_factory.mktemp("model") / "calls.safetensors"
    hb.learn(dataset.train, label_names=dataset.label_names, tfidf=dataset.tfidf).save(path)
    return path
