"""Heads in real-valued operations, and in ONNX."""

import pytest
import torch
from helpers.codebooks import normal
from helpers.heads import D, H, N, every_head, make_head
from torch.testing import assert_close

import holobind as hb


@every_head
def test_the_real_form_has_the_scores_and_labels_of_the_head(options):
    if "codebook" not in options:
        pytest.skip("a linear head is real")
    head, h = make_head(options).eval(), normal(4, H)
    scores = head.scores(h)
    sizes = (64 << 20, 0) if options["codebook"] == "orbit" else (64 << 20,)
    for max_table_bytes in sizes:  # a table, and the DFT as matrices
        exported = hb.ExportableHead(head, max_table_bytes=max_table_bytes)
        assert exported.table == (max_table_bytes > 0)
        assert not any(tensor.is_complex() for tensor in exported.buffers())
        assert_close(exported(h), scores, atol=1e-4, rtol=1e-4)
        best, ids = hb.ExportableHead(head, k=3, max_table_bytes=max_table_bytes)(h)
        assert_close(best, head.top_k(h, 3)[0], atol=1e-4, rtol=1e-4)
        assert torch.equal(ids, head.top_k(h, 3)[1])
    if options["loss"] == "softmax":
        assert_close(hb.ExportableHead(head, logits=True)(h), head.logits(h), atol=1e-4, rtol=1e-4)


def test_a_table_that_is_too_large_is_refused():
    with pytest.raises(
        hb.OptionError, match="37 label vectors of 16 dimensions take 0 MB; allow that by max_table_bytes"
    ):
        hb.ExportableHead(hb.HolographicHead(H, N, D, "random"), max_table_bytes=100)
    with pytest.raises(hb.OptionError, match="the loss 'query' has no logits"):
        hb.ExportableHead(hb.HolographicHead(H, N, D, loss="query"), logits=True)
    with pytest.raises(hb.OptionError, match="k must be from 1 to the number of labels, 37; got 38"):
        hb.ExportableHead(hb.HolographicHead(H, N, D), k=38)


@pytest.mark.parametrize("max_table_bytes", [64 << 20, 0], ids=["table", "DFT"])
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_onnxruntime_finds_the_same_labels(max_table_bytes):
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package)
    runtime = pytest.importorskip("onnxruntime")
    head = hb.HolographicHead(H, N, 15, prior=normal(N)).eval()
    module = hb.ExportableHead(head, k=4, max_table_bytes=max_table_bytes).eval()
    rows = torch.export.Dim("rows")
    program = torch.onnx.export(module, (normal(2, H),), dynamo=True, dynamic_shapes=({0: rows},), verbose=False)
    session = runtime.InferenceSession(program.model_proto.SerializeToString())
    h = normal(9, H, seed=1)
    best, ids = (torch.from_numpy(part) for part in session.run(None, {session.get_inputs()[0].name: h.numpy()}))
    wanted = head.top_k(h, 4)
    assert_close(best, wanted[0], atol=1e-4, rtol=1e-4)
    assert torch.equal(ids, wanted[1])
