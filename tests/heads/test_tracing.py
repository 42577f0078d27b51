"""torch.func, torch.compile, torch.export and the meta device: the operations in plain torch that stand in for kernels.

Each fast path of the CPU (fused query loss, compiled top k, numpy's transform, blocks with their own derivative) has a
twin in torch's own operations, which runs wherever tensors have no values. Here the twins run on values, under
`torch.func` and `torch.compile(backend="aot_eager")`, and are compared with the fast paths; on the meta device only
shapes are.
"""

import pytest
import torch
from helpers.codebooks import normal
from helpers.heads import D, H, N, every_head, make_head
from torch.func import functional_call, grad, vmap
from torch.testing import assert_close

import holobind as hb

Y = torch.tensor([3, 36, 0])


class LossOf(torch.nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, h, *target, **options):
        return self.head.loss(h, *target, **options)


class Ranking(torch.nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, h):
        return self.head.scores(h), *self.head.top_k(h, 4)


@every_head
def test_torch_func_has_the_gradients_of_autograd(options):
    """By h and by all parameters; the traced twins against the fast paths."""
    head, h = make_head(options), normal(3, H).requires_grad_()
    module = LossOf(head)
    head.loss(h, Y, torch.arange(3)).backward()
    wanted = {f"head.{name}": parameter.grad for name, parameter in head.named_parameters()}
    parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}

    def loss(parameters, h):
        return functional_call(module, parameters, (h, Y, torch.arange(3)))

    found, by_h = grad(loss, argnums=(0, 1))(parameters, h.detach())
    assert_close(by_h, h.grad, atol=1e-4, rtol=1e-4)
    for name, gradient in wanted.items():
        if gradient is not None:
            assert_close(found[name], gradient, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("make", [lambda: hb.HolographicHead(H, N, D, prior=normal(N)), lambda: hb.LinearHead(H, N)])
def test_vmap_gives_the_gradient_of_each_row(make):
    head, h = make(), normal(3, H)
    each = vmap(grad(lambda row, y: head.loss(row[None], y[None])))(h, Y)
    rows = h.clone().requires_grad_()
    head.loss(rows, Y, reduction="sum").backward()
    assert_close(each, rows.grad, atol=1e-5, rtol=1e-5)
    assert_close(vmap(head.scores)(h), head.scores(h), atol=1e-5, rtol=1e-5)


COMPILED = [
    {"codebook": "orbit", "loss": "softmax", "prior": True},
    {"codebook": "random", "loss": "softmax"},
    {"codebook": "orbit", "loss": "query"},
    {"codebook": "orbit", "loss": "query", "few": True},
    {"loss": "softmax"},
]


@pytest.mark.parametrize(
    ("options", "target"),
    [(COMPILED[0], (Y,)), (COMPILED[2], (Y, torch.arange(3)))],
    ids=["softmax of class indices", "query loss of sets"],
)
def test_the_loss_compiles_without_a_graph_break(options, target):
    """With `backend="inductor"` as well, which takes longer: benchmarks/bench_compile.py."""
    torch._dynamo.reset()
    head = make_head(options)
    compiled = torch.compile(head.loss, fullgraph=True, backend="aot_eager")
    h, other = (normal(3, H).requires_grad_() for _ in range(2))
    loss, exact = compiled(h, *target), head.loss(other, *target)
    assert_close(loss, exact, atol=1e-5, rtol=1e-5)
    loss.backward()
    exact.backward()
    assert_close(h.grad, other.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("options", [COMPILED[0], COMPILED[3]], ids=str)
def test_scores_and_top_k_are_exported_with_any_number_of_rows(options):
    head = make_head(options).eval()
    program = torch.export.export(Ranking(head), (normal(3, H),), dynamic_shapes=({0: torch.export.Dim("rows")},))
    for rows in (2, 7):
        h = normal(rows, H, seed=rows)
        scores, best, ids = program.module()(h)
        assert_close(scores, head.scores(h), atol=1e-5, rtol=1e-5)
        wanted = head.top_k(h, 4)
        assert_close(best, wanted[0], atol=1e-5, rtol=1e-5)
        assert torch.equal(ids, wanted[1])


@every_head
def test_every_operation_runs_on_the_meta_device(options):
    """No device is needed: the meta device refuses what reads values, as a kernel for the CPU would."""
    head, h = make_head(options, device="meta"), torch.empty(2, 3, H, device="meta")
    flat, sets = h.flatten(0, 1), (torch.empty(9, dtype=torch.long, device="meta"),)
    offsets = torch.empty(6, dtype=torch.long, device="meta")
    loss = head.loss(flat, *sets, offsets)
    loss.backward()
    assert loss.shape == () and loss.is_meta
    assert all(p.grad.is_meta for p in head.parameters() if p.grad is not None)
    assert head.scores(h).shape == (2, 3, N)
    assert [part.shape for part in head.top_k(h, 4)] == [(2, 3, 4)] * 2
    assert head.scores_of(h, torch.empty(2, 3, 5, dtype=torch.long, device="meta")).shape == (2, 3, 5)
    assert head.predict(h).shape == (2, 3)
    if options["loss"] == "softmax":
        y = torch.empty(2, 3, dtype=torch.long, device="meta")
        options = {"label_smoothing": 0.1, "weight": torch.empty(N, device="meta")}
        assert head.loss(h, y, reduction="none", **options).shape == (2, 3)
        assert head.log_prob(h, y).shape == (2, 3)
        assert head.sample(h, top_p=0.5).shape == (2, 3)


def test_top_k_in_plain_torch_is_the_compiled_one():
    """The compiled search takes over from 16,384 scores on; both rank whatever the other does."""
    head, h = hb.HolographicHead(H, 20_000, 64), normal(3, H)
    best, ids = head.top_k(h, 5)
    plain = vmap(lambda row: head.top_k(row, 5))(h)
    assert torch.equal(plain[1], ids)
    assert_close(plain[0], best, atol=1e-5, rtol=1e-5)
