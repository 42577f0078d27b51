"""The compression table counts the weights of the layers."""

import torch
from holobind_paper import compression

import holobind as hb


def test_compression_counts_the_weights_of_the_layers():
    for features, labels, dim in ((7, 40, 5), (30, 12, 20)):
        network = sum(p.numel() for p in (torch.empty(features, 8), torch.empty(8, 8)))
        for outputs, head in (
            (labels, hb.LinearHead(8, labels, bias=False)),
            (dim, hb.HolographicHead(8, labels, dim, loss="query", bias=False)),
        ):
            size = sum(p.numel() for p in head.parameters())
            assert compression.weights(features, outputs, hidden=8) == (size, network + size)


def test_compression_equals_the_paper_except_where_its_sizes_give_another_value(tmp_path):
    data = compression.run(tmp_path)
    differ = {
        (row["dataset"], scope)
        for row in data["rows"]
        for scope in ("output", "network")
        if not row.get(f"{scope}_equal", True)
    }
    assert differ == {
        ("Wiki10-31K", "output"),
        ("Wiki10-31K", "network"),
        ("Delicious-200K", "network"),
        ("Amazon-670K", "network"),
    }
    assert len(data["rows"]) == 8
    assert "29.49 in the paper, 20.94 by its sizes" in " ".join(data["notes"])
