"""The state of heads: fingerprints, safetensors, the meta device, first weights, Hugging Face."""

import copy
import warnings

import pytest
import torch
from helpers.codebooks import normal
from helpers.heads import HOLOGRAPHIC, NAIVE_TRAINABLE, TRAINABLE, WITH_PRIOR, D, H, N, every_head, make_head
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn
from torch.testing import assert_close

import holobind as hb

FEW_LABELS = {"codebook": "orbit", "loss": "query", "few": True}  # learns coordinates in the query subspace
SOME = [
    FEW_LABELS,
    HOLOGRAPHIC[0],
    HOLOGRAPHIC[1],
    HOLOGRAPHIC[5],
    HOLOGRAPHIC[9],
    TRAINABLE[3],
    TRAINABLE[7],
    WITH_PRIOR[2],
    NAIVE_TRAINABLE[1],
]
some_heads = pytest.mark.parametrize("options", SOME, ids=str)


def moved(head):
    """The head with other weights than its first ones."""
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.1 * normal(*parameter.shape, seed=3))
    return head


# Fingerprints

OTHERS = {
    "seed": ({"seed": 1}, "the state is of seed 1; this module has seed 0"),
    "codebook": ({"codebook": "random"}, "the state is of codebook 'random'; this module has codebook 'orbit'"),
    "labels": ({"n_labels": N + 1}, "the state is of n_labels 38; this module has n_labels 37"),
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("other", "message"), OTHERS.values(), ids=OTHERS)
def test_a_state_of_other_label_vectors_is_refused_by_name(other, message, strict):
    options = {"in_features": H, "n_labels": N, "dim": D, "seed": 0}
    parent = nn.Sequential(nn.Linear(3, H), hb.HolographicHead(**options))
    state = nn.Sequential(nn.Linear(3, H), hb.HolographicHead(**options | other)).state_dict()
    with pytest.raises(RuntimeError, match=f"1.codebook.fingerprint: {message}: build it as the one that was saved"):
        parent.load_state_dict(state, strict=strict)


def test_a_state_of_other_keys_is_refused():
    """p and m are drawn from the head's seed, also where the label vectors are stored."""
    one, other = (hb.HolographicHead(H, N, D, "naive", "query", seed) for seed in (0, 1))
    with pytest.raises(RuntimeError, match="fingerprint: the state is of seed 1; this module has seed 0"):
        one.load_state_dict(other.state_dict())


def test_a_state_without_a_fingerprint_warns():
    head = hb.HolographicHead(H, N, D)
    state = {name: tensor for name, tensor in head.state_dict().items() if "fingerprint" not in name}
    with pytest.warns(UserWarning, match="no codebook.fingerprint: whether its label vectors are those of this head"):
        head.load_state_dict(state, strict=False)
    with pytest.raises(RuntimeError, match=r"Missing key.*codebook.fingerprint"), pytest.warns(UserWarning):
        head.load_state_dict(state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        head.load_state_dict({}, strict=False)  # the state of the network's body alone
        head.load_state_dict(head.state_dict())


def test_a_fingerprint_that_is_assigned_is_compared_at_the_next_use():
    for head in (hb.HolographicHead(H, N, D), hb.HolographicHead(H, N, D, loss="query")):
        head.scores(normal(2, H))
        head.codebook.fingerprint = hb.OrbitCodebook(N, D, seed=7).fingerprint
        if head.loss_name == "query":
            head.fingerprint = hb.HolographicHead(H, N, D, loss="query", seed=7).fingerprint
        for use in (head.scores, lambda h, head=head: head.loss(h, torch.tensor([1, 2]))):
            with pytest.raises(hb.OptionError, match="the state is of seed 7; this module has seed 0"):
                use(normal(2, H))


def test_garbage_in_place_of_a_fingerprint_is_refused():
    head, state = hb.HolographicHead(H, N, D), hb.HolographicHead(H, N, D).state_dict()
    for wrong in (torch.zeros(3, dtype=torch.long), torch.zeros(4), torch.zeros(0)):
        with pytest.raises(RuntimeError, match="the state has no valid fingerprint, but torch"):
            head.load_state_dict(state | {"codebook.fingerprint": wrong})


@every_head
def test_safetensors_restore_a_head(options, tmp_path):
    head, h = moved(make_head(options)), normal(2, H)
    save_file(head.state_dict(), tmp_path / "a.safetensors")
    other = make_head(options)
    other.load_state_dict(load_file(tmp_path / "a.safetensors"))
    assert torch.equal(other.scores(h), head.scores(h))


def test_safetensors_restore_a_model_with_a_tied_codebook(tmp_path):
    def model():
        head = hb.HolographicHead(D, N, D)
        return nn.ModuleDict({"embedding": hb.CodebookEmbedding(head.codebook), "head": head})

    one, other, ids = moved(model()), model(), torch.tensor([[1, 36]])
    save_file(one.state_dict(), tmp_path / "a.safetensors")
    other.load_state_dict(load_file(tmp_path / "a.safetensors"))
    again = model()
    save_model(one, str(tmp_path / "b.safetensors"))
    load_model(again, str(tmp_path / "b.safetensors"))
    for loaded in (other, again):
        assert torch.equal(loaded["head"].scores(loaded["embedding"](ids)), one["head"].scores(one["embedding"](ids)))


def test_a_prior_in_the_state_is_loaded_into_a_head_without_one():
    trained, fresh, h = hb.HolographicHead(H, N, D), hb.HolographicHead(H, N, D), normal(2, H)
    trained.set_prior(torch.arange(N))
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(fresh.logits(h), trained.logits(h))
    with pytest.raises(RuntimeError, match=r"Unexpected key.*prior"):  # of another number of labels
        hb.HolographicHead(H, N, D).load_state_dict(trained.state_dict() | {"prior": torch.zeros(N - 1)})


def test_a_copy_and_a_move_keep_the_fingerprint():
    head, h = hb.HolographicHead(H, N, D, loss="query"), normal(2, H)
    assert torch.equal(copy.deepcopy(head).scores(h), head.scores(h))
    assert_close(head.double().scores(h.double()).float(), head.float().scores(h), atol=1e-5, rtol=1e-5)
    assert head.fingerprint.dtype == torch.int64


# The meta device


@some_heads
def test_a_head_on_meta_has_no_storage_and_gets_its_values_from_a_state(options):
    trained, h = moved(make_head(options)), normal(2, H)
    with torch.device("meta"):
        first = make_head(options | ({"prior": True} if "prior" in options else {}))
    given = make_head(options, device="meta")
    for head in (first, given):
        assert all(tensor.is_meta for tensor in (*head.parameters(), *head.buffers()))
    first.to_empty(device="cpu").load_state_dict(trained.state_dict())
    given.load_state_dict(trained.state_dict(), assign=True)
    for head in (first, given):
        assert torch.equal(head.scores(h), trained.scores(h))
        assert torch.equal(head.loss(h, torch.tensor([1, 2])), trained.loss(h, torch.tensor([1, 2])))


@some_heads
def test_reset_parameters_after_to_empty_gives_what_construction_gives(options):
    options = {**options, "seed": 4}
    built = make_head(options)
    emptied = make_head(options, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*emptied.parameters(), *emptied.buffers()):
            if tensor.is_floating_point():
                tensor.fill_(torch.nan)
    emptied.reset_parameters()
    state = built.state_dict()
    assert state.keys() == emptied.state_dict().keys()
    for name, tensor in emptied.state_dict().items():
        assert_close(tensor, state[name], atol=1e-6, rtol=1e-6)
    h = normal(2, H)
    assert_close(emptied.scores(h), built.scores(h), atol=1e-5, rtol=1e-5)
    assert_close(emptied.loss(h, torch.tensor([1, 2])), built.loss(h, torch.tensor([1, 2])), atol=1e-5, rtol=1e-5)


def test_a_head_that_was_emptied_and_not_reset_says_so():
    head = hb.HolographicHead(H, N, D).to_empty(device="cpu")
    head.codebook.fingerprint.fill_(77)  # what the memory held before
    with pytest.raises(hb.OptionError, match="neither loaded nor set by `reset_parameters`"):
        head.scores(normal(2, H))
    own = hb.HolographicHead(H, N, D, hb.DenseCodebook(normal(N, D)))
    with pytest.raises(hb.OptionError, match="no seed defines these vectors, they are yours; load them"):
        own.reset_parameters()


# First weights, as those of nn.Linear


@pytest.mark.parametrize("bias", [True, False])
def test_the_first_weights_are_those_of_nn_linear(bias):
    for make in (lambda: hb.HolographicHead(H, N, D, bias=bias), lambda: hb.LinearHead(H, D, bias=bias)):
        torch.manual_seed(7)
        head = make()
        torch.manual_seed(7)
        layer = nn.Linear(H, D, bias=bias)
        assert torch.equal(head.weight, layer.weight)
        assert (head.bias is None) if not bias else torch.equal(head.bias, layer.bias)
        assert not torch.equal(make().weight, head.weight)


def test_a_seed_leaves_the_global_generator_alone():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first, again = (hb.HolographicHead(H, N, D, seed=1) for _ in range(2))
    assert torch.equal(first.weight, again.weight)
    assert torch.equal(torch.get_rng_state(), before)


def test_sizes_dtype_and_device_as_of_nn_linear():
    head = hb.HolographicHead(H, N, dtype=torch.float64, device="cpu")
    assert (head.in_features, head.out_features, head.output_dim) == (H, 40, 40)  # the first fast size
    assert {p.dtype for p in head.parameters()} == {torch.float64}
    assert head.logits(normal(2, H).double()).dtype == torch.float64
    logits = hb.HolographicHead(H, 5000, output="logits")
    assert (logits.output_dim, logits.out_features) == (1024, 5000)
    assert torch.equal(logits(normal(2, H)), logits.logits(normal(2, H)))
    assert "in_features=5, n_labels=5000, dim=1024, out_features=5000, bias=True, loss='softmax'" in repr(logits)
    assert hb.HolographicHead(H, N, codebook=hb.OrbitCodebook(N, D)).output_dim == D
    linear = hb.LinearHead(H, N, dtype=torch.bfloat16, device="meta")
    assert linear.weight.is_meta and linear.weight.dtype == torch.bfloat16
    assert (linear.in_features, linear.out_features) == (H, N)
    with pytest.raises(hb.OptionError, match="output must be one of 'vector', 'logits'"):
        hb.HolographicHead(H, N, output="scores")
    with pytest.raises(hb.OptionError, match="the softmax loss has logits; the loss 'query' has none"):
        hb.HolographicHead(H, N, loss="query", output="logits")


# Hugging Face


def hugging_face_model(loss):
    transformers = pytest.importorskip("transformers")

    class Config(transformers.PretrainedConfig):
        model_type = "holobind-test"

        def __init__(self, seed=0, **options):
            self.seed = seed
            super().__init__(**options)

    class Classifier(transformers.PreTrainedModel):
        config_class = Config

        def __init__(self, config):
            super().__init__(config)
            self.body = nn.Linear(3, H)
            prior = torch.zeros(N) if loss == "softmax" else None
            self.classifier = hb.HolographicHead(H, N, D, seed=config.seed, loss=loss, prior=prior)
            self.post_init()

        def _init_weights(self, module):
            if isinstance(module, hb.HolographicHead):
                module.reset_parameters()
            else:
                super()._init_weights(module)

    return Config, Classifier


@pytest.mark.parametrize("loss", ["softmax", "query", "query-abs"])
def test_hugging_face_saves_and_loads_a_model_with_a_head(loss, tmp_path):
    Config, Classifier = hugging_face_model(loss)
    model, h = moved(Classifier(Config())).eval(), normal(2, H)
    model.save_pretrained(tmp_path)
    loaded = Classifier.from_pretrained(tmp_path)
    assert torch.equal(loaded.classifier.scores(h), model.classifier.scores(h))
    assert torch.equal(loaded.classifier.loss(h, torch.tensor([1, 2])), model.classifier.loss(h, torch.tensor([1, 2])))
    with pytest.raises(hb.OptionError, match="the state is of seed 0; this module has seed 1"):
        Classifier.from_pretrained(tmp_path, config=Config(seed=1)).classifier.scores(h)
