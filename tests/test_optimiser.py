"""RowAdam beside its equation, one row and one number at a time."""

import math
from copy import deepcopy

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from holobind.optimiser import RowAdam

ROWS, WIDTH = 6, 3


def gradient(rows, seed):
    values = torch.randn(len(rows), WIDTH, generator=torch.Generator().manual_seed(seed))
    indices = torch.tensor([rows], dtype=torch.long).reshape(1, -1)
    return torch.sparse_coo_tensor(indices, values, (ROWS, WIDTH), check_invariants=True)


def start():
    return torch.nn.Parameter(torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(9)))


def by_definition(parameter, gradients, lr, betas, eps):
    """The equation of its docstring in Python's floats."""
    b1, b2 = betas
    weights = [[float(x) for x in row] for row in parameter.tolist()]
    m, v, t = [[0.0] * WIDTH for _ in range(ROWS)], [0.0] * ROWS, [0] * ROWS
    for grad in gradients:
        dense = grad.to_dense().tolist()
        for row in sorted(set(grad.coalesce().indices()[0].tolist())):
            g = dense[row]
            t[row] += 1
            m[row] = [b1 * old + (1 - b1) * new for old, new in zip(m[row], g, strict=True)]
            v[row] = b2 * v[row] + (1 - b2) * sum(x * x for x in g) / WIDTH
            root = math.sqrt(v[row] / (1 - b2 ** t[row])) + eps
            weights[row] = [
                w - lr * (mean / (1 - b1 ** t[row])) / root for w, mean in zip(weights[row], m[row], strict=True)
            ]
    return torch.tensor(weights)


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.integers(0, ROWS - 1), max_size=8), min_size=1, max_size=8),
    st.sampled_from([(0.9, 0.999), (0.5, 0.9)]),
)
def test_it_follows_its_equation(touched, betas):
    """Rows in any order, twice in one gradient (they add up), or none at all."""
    parameter = start()
    gradients = [gradient(rows, seed) for seed, rows in enumerate(touched)]
    wanted = by_definition(parameter, gradients, 0.1, betas, 1e-8)
    optimiser = RowAdam([parameter], lr=0.1, betas=betas)
    for grad in gradients:
        parameter.grad = grad
        optimiser.step()
    assert_close(parameter.detach(), wanted, atol=1e-4, rtol=1e-4)


def test_rows_not_touched_stay_as_they_are_to_the_bit():
    parameter = start()
    before = parameter.detach().clone()
    optimiser = RowAdam([parameter], lr=0.1)
    for seed in range(5):
        parameter.grad = gradient([1, 4], seed)
        optimiser.step()
    rest = [0, 2, 3, 5]
    assert torch.equal(parameter[rest], before[rest])
    assert (parameter[[1, 4]] != before[[1, 4]]).all()
    state = optimiser.state[parameter]
    assert state["steps"].tolist() == [0, 5, 0, 0, 5, 0]
    assert state["mean"][rest].eq(0).all() and state["square"][rest].eq(0).all()


def test_a_row_does_not_care_about_other_rows():
    """Training a row alone, or every second step beside others, is the same: steps are counted by row."""
    alone, among = start(), start()
    one, other = RowAdam([alone], lr=0.1), RowAdam([among], lr=0.1)
    for seed in range(4):
        alone.grad = gradient([2], seed)
        one.step()
        among.grad = gradient([0, 5], 100 + seed)
        other.step()
        among.grad = gradient([2], seed)
        other.step()
    assert torch.equal(alone[2], among[2])


def test_a_constant_gradient_moves_by_the_rate_whatever_its_size():
    for size in (1e-3, 1.0, 1e3):
        parameter = torch.nn.Parameter(torch.zeros(2, WIDTH))
        optimiser = RowAdam([parameter], lr=0.1)
        for _ in range(10):
            parameter.grad = torch.sparse_coo_tensor([[1]], torch.full((1, WIDTH), size), (2, WIDTH))
            optimiser.step()
        assert_close(parameter[1].detach(), torch.full((WIDTH,), -1.0), atol=1e-3, rtol=1e-3)


def test_a_parameter_without_a_gradient_is_passed_over_and_the_state_can_be_restored():
    parameter, idle = start(), start()
    optimiser = RowAdam([parameter, idle], lr=0.1)
    parameter.grad = gradient([0, 1], 0)
    optimiser.step()
    assert torch.equal(idle, start())
    saved, copy = deepcopy(optimiser.state_dict()), torch.nn.Parameter(parameter.detach().clone())
    resumed = RowAdam([copy, start()], lr=0.1)
    resumed.load_state_dict(saved)
    for one, steps in ((parameter, optimiser), (copy, resumed)):
        one.grad = gradient([1, 2], 1)
        steps.step()
    assert torch.equal(parameter, copy)
