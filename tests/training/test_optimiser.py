"""RowAdam against its equations, compiled and not."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from holobind.training import TrainConfig, optimiser
from holobind.training.optimiser import RowAdam

N, D = 50, 16


def batches(count, seed=0):
    """Sparse gradients; some name a row twice."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        rows = torch.randint(N // 2, (1, 12), generator=generator)
        yield torch.sparse_coo_tensor(rows, torch.randn(12, D, generator=generator), (N, D), check_invariants=True)


def by_definition(grads, weight, lr, b1=0.9, b2=0.999, eps=1e-8):
    weight = weight.double().clone()
    m, v, t = torch.zeros(N, D).double(), torch.zeros(N).double(), torch.zeros(N).double()
    for grad in grads:
        touched = torch.zeros(N, dtype=torch.bool)
        touched[grad._indices()[0]] = True
        for r in touched.nonzero()[:, 0].tolist():
            g = grad.to_dense()[r].double()
            t[r] += 1
            m[r] = b1 * m[r] + (1 - b1) * g
            v[r] = b2 * v[r] + (1 - b2) * (g @ g) / D
            weight[r] -= lr * (m[r] / (1 - b1 ** t[r])) / ((v[r] / (1 - b2 ** t[r])).sqrt() + eps)
    return weight


@pytest.mark.parametrize("way", ["compiled", "compiled on two threads", "by_operations", "float64"])
def test_a_step_is_adams_with_one_second_moment_a_row(way, monkeypatch):
    dtype = torch.float64 if way == "float64" else torch.float32
    start = torch.randn(N, D, generator=torch.Generator().manual_seed(9), dtype=dtype)
    weight = nn.Parameter(start.clone())
    if way == "by_operations":
        monkeypatch.setattr(optimiser, "update_compiled", optimiser.update_by_operations)
    threads = torch.get_num_threads()
    if way == "compiled on two threads":
        torch.set_num_threads(2)
        monkeypatch.setattr(optimiser, "MIN_ELEMENTS_PER_THREAD", 0)
    adam = RowAdam([weight], lr=0.1)
    for grad in batches(20):
        weight.grad = grad.to(dtype)
        adam.step()
    torch.set_num_threads(threads)
    wanted = by_definition(batches(20), start, 0.1)
    assert_close(weight.detach().double(), wanted, atol=1e-9 if dtype == torch.float64 else 2e-5, rtol=1e-4)
    assert torch.equal(weight[N // 2 :], start[N // 2 :])  # never touched, never changed


def test_threads_do_not_change_the_result(monkeypatch):
    found, before = [], torch.get_num_threads()
    monkeypatch.setattr(optimiser, "MIN_ELEMENTS_PER_THREAD", 0)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        weight = nn.Parameter(torch.zeros(N, D))
        adam = RowAdam([weight], lr=0.1)
        for grad in batches(5):
            weight.grad = grad
            adam.step()
        found.append(weight.detach().clone())
    torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_nothing_touched_changes_nothing():
    weight = nn.Parameter(torch.ones(N, D))
    adam = RowAdam([weight])
    adam.step()
    weight.grad = torch.sparse_coo_tensor(torch.zeros(1, 0).long(), torch.zeros(0, D), (N, D), check_invariants=True)
    adam.step()
    assert (weight == 1).all()


def test_the_update_by_operations_runs_on_the_meta_device():
    """It reads no value, so it runs on any device; the compiled update is for the CPU alone."""
    weight, mean = torch.empty(N, D, device="meta"), torch.empty(N, D, device="meta")
    square, steps, rows = (torch.empty(n, device="meta") for n in (N, N, 7))
    optimiser.update_by_operations(
        rows.long(), torch.empty(7, D, device="meta"), weight, mean, square, steps, 0.1, 0.9, 0.999, 1e-8
    )
    assert weight.is_meta and weight.shape == (N, D)


def weights_after_training(scale, config):
    """A word embedding (sparse gradients) and a layer (dense ones) after three steps on a loss times `scale`."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(N, D, sparse=True), nn.Linear(D, 3))
    words, target = torch.randint(N, (8,)), torch.randn(8, 3)
    found = optimiser.optimisers(model, config)
    assert {type(each).__name__ for each in found} == {"AdamW", "RowAdam"}
    for _ in range(3):
        (scale * (model(words) - target).square().mean()).backward()
        for each in found:
            each.step()
            each.zero_grad()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("epsilon, invariant", [(1e-16, True), (1e-8, False)])
def test_with_a_small_epsilon_steps_do_not_depend_on_the_scale_of_the_loss(epsilon, invariant):
    config = TrainConfig(learning_rate=0.1, adam_epsilon=epsilon)
    usual, tiny = (weights_after_training(scale, config) for scale in (1.0, 2.0**-26))
    assert torch.allclose(usual, tiny, atol=1e-4) == invariant
