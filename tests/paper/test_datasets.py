"""Datasets are found by name."""

from pathlib import Path

import pytest
from holobind_paper import datasets, training

import holobind as hb


def test_datasets_of_the_paper_are_found_by_name_in_the_repositorys_layout(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "cache"))
    names = {
        "EURLex-4K": "EURLex-4K",
        "AmazonCat-13K": "Amazon-13K",
        "wiki10_31k": "Wiki10-31K",
        "Amazon-670K": "Amazon-670K",
    }
    for folder, name in names.items():
        hb.data.write(hb.data.synthetic(name, scale=0.001), tmp_path / "data" / folder, "xml")
    (tmp_path / "data" / "holiday pictures").mkdir()
    found = datasets.available(tmp_path / "data")
    assert [source.name for source in found] == ["EURLex-4K", "Wiki10-31K", "Amazon-13K", "Amazon-670K"]
    for source in found:
        dataset = source.load()
        assert dataset.n_labels == hb.data.synthetic(source.name, scale=0.001).n_labels
        assert "not the published sizes" in source.remark(dataset)


def test_a_missing_folder_and_two_folders_of_one_dataset_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "cache"))
    with pytest.raises(hb.OptionError, match="is not a folder"):
        datasets.available(tmp_path / "nowhere")
    for name in ("bibtex", "Bibtex_", "Eurlex", "eurlex-4k"):
        (tmp_path / "data" / name).mkdir(parents=True)
    with pytest.raises(hb.OptionError, match=r"both .* are EURLex-4K"):
        datasets.available(tmp_path / "data")


def test_corpora_made_from_installed_code_are_always_available_and_unknown_names_are_refused(data):
    names = [source.name for source in datasets.chosen(data)]
    assert names == ["Bibtex", "Delicious", "python-calls", "python-calls-torch"]
    assert [source.name for source in datasets.chosen(None, ["Python_calls"])] == ["python-calls"]
    with pytest.raises(hb.OptionError, match=r"--only Bibtex: no such dataset; there are python-calls"):
        datasets.chosen(None, ["bibtex"])
    assert [s.name for s in training.pick(None, None, False, ("Bibtex",))] == ["python-calls"]
    assert [s.name for s in training.pick(data, None, False, ("Delicious", "Bibtex"))] == ["Bibtex", "Delicious"]
    # A table about many labels leaves out the paper's small datasets, unless they are named.
    assert [s.name for s in training.pick(data, None, False, ("Bibtex",), min_labels=900)] == ["Bibtex", "Delicious"]
    assert [s.name for s in training.pick(data, None, False, (), min_labels=900)] == ["Delicious"]
    assert [s.name for s in training.pick(data, ["Bibtex"], False, (), min_labels=900)] == ["Bibtex"]


def test_the_folder_of_datasets_is_the_option_or_the_environment_variable_or_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLOBIND_DATA", str(tmp_path / "environment"))
    assert datasets.data_folder() == tmp_path / "environment"
    assert datasets.chosen_folder(None) == tmp_path / "environment"
    assert datasets.chosen_folder(tmp_path / "option") == tmp_path / "option"
    monkeypatch.delenv("HOLOBIND_DATA")
    assert datasets.data_folder() == Path(__file__).parents[3] / "shared" / "data"
    monkeypatch.setattr(datasets, "data_folder", lambda: tmp_path / "nowhere")
    assert datasets.chosen_folder(None) is None
