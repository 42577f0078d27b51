"""Exact methods of inference find the exact top 5; a missing or slow index is reported."""

import sys

import pytest
from holobind_paper import inference


def test_exact_methods_find_the_exact_top_5(tmp_path, monkeypatch):
    monkeypatch.setattr(inference, "QUICK_LABELS", (600, 1100))  # not multiples of d
    monkeypatch.setattr(inference, "LABELS_PER_BLOCK", 250)
    data = inference.run(tmp_path, quick=True)
    recall = {(row["model"], row["labels"]): row["recall"] for row in data["rows"]}
    for name in {"dense", "random", "orbit", "faiss flat"} & {name for name, _ in recall}:
        assert recall[name, 600] == recall[name, 1100] == 1
    stored = {row["model"]: row["bytes"] for row in data["rows"] if row["labels"] == 1100}
    assert stored["dense"] == 1100 * inference.DIM * 4
    assert stored["orbit"] < stored["dense"] / 100
    assert (tmp_path / "inference.png").exists()


def test_inference_runs_without_faiss_and_reports_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(inference, "QUICK_LABELS", (500,))
    data = inference.run(tmp_path, quick=True)
    assert {row["model"] for row in data["rows"]} == {"dense", "random", "orbit"}
    assert "faiss is not installed" in " ".join(data["notes"])


def test_an_index_that_takes_too_long_to_build_is_left_out_and_reported(tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr(inference, "QUICK_LABELS", (500, 600))
    monkeypatch.setattr(inference, "MAX_BUILD_SECONDS", -1.0)
    data = inference.run(tmp_path, quick=True)
    assert [row["labels"] for row in data["rows"] if row["model"] == "faiss HNSW"] == [500]  # 600 would take longer
    assert "faiss HNSW at 500: after -1 s the index held 0 of 500 labels" in " ".join(data["notes"])
    assert data["table"][1][-1] == data["table"][2][-1] == "left out"
