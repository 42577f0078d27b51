"""The criteria of the choice of HRR are measured."""

import torch
from holobind_paper import vsa_selection

from holobind.symbols.vsa import VTB


def test_the_matrix_of_vtb_written_out_binds_and_unbinds_as_vtb_does():
    x, y = (VTB().random(3, 16, torch.Generator().manual_seed(seed)) for seed in (1, 2))
    torch.testing.assert_close(vsa_selection._bind_written_out(x, y), VTB().bind(x, y))
    statement = VTB().bind(x, y).sum(0)
    torch.testing.assert_close(vsa_selection._unbind_written_out(statement, y), VTB().unbind(statement, y))


def test_memory_counts_what_the_backward_pass_keeps_once():
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    assert vsa_selection._measured(x, y, lambda a, b: a * b)["memory"] == 1.5  # a, b, and the product that is squared
    found = vsa_selection._measured(x, y, lambda a, b: (a * b).clamp(-1e-9, 1e-9))
    assert found["gradient share"] == 0


def test_every_system_has_a_row(tmp_path):
    found = vsa_selection.run(tmp_path, quick=True)
    rows = {row["vsa"]: row for row in found["rows"]}
    assert set(rows) == {*vsa_selection.SYSTEMS, vsa_selection.WRITTEN_OUT, vsa_selection.TPR}
    assert rows["TPR"]["bound"] == vsa_selection.QUICK_D**2
    assert [tuple(size["measured"]) for size in found["tensor_products"]] == [(256, 4096), (4096, 262144)]
