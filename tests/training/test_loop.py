"""The training loop: it learns, keeps the best epoch, is repeatable, and resumes after any interruption."""

import itertools
import json
import multiprocessing
import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.training import CONFIG, data, main, model, run, same, weights
from safetensors.torch import load_file
from torch import nn
from torch.testing import assert_close

import holobind as hb
from holobind import _storage as storage
from holobind import metrics
from holobind.errors import FileError, OptionError
from holobind.training import checkpoint, loop
from holobind.training.optimiser import RowAdam

MODELS = ("fc", "linear_skip", "linear", "bce")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def split():
    return data()


def names(place):
    return sorted(path.name for path in place.iterdir())


class Recording:
    """Examples that record which rows were requested, and whether for training."""

    sizes = None

    def __init__(self, made, X):
        self.made, self.inner, self.requested = made, made.examples(X), {True: [], False: []}

    def __len__(self):
        return len(self.inner)

    def batch(self, index):
        self.requested[self.made.training].append(index.copy())
        return self.inner.batch(index)


@pytest.mark.parametrize("what", MODELS)
def test_it_learns(split, what):
    made = model(split, what)
    state = run(split, made, {"epochs": 10, "learning_rate": 1e-2})
    losses = [entry["loss"] for entry in state.history]
    assert losses[-1] < 0.8 * losses[0]
    rows, held = loop.validation_split(len(split), 0.2, 5)
    frequent = np.argsort(-metrics.frequencies(split.Y[rows]).counts, kind="stable")[:1]
    guess = metrics.precision_at_k(split.Y[held], np.tile(frequent, (len(held), 1)))[0]
    assert state.best > guess + 10
    found = metrics.precision_at_k(split.Y[held], made.top_k(split.X[held], 1)[1])[0]
    assert found == pytest.approx(state.best)


@pytest.mark.parametrize("what", MODELS)
def test_one_seed_gives_one_model_whatever_torchs_own_generator_is_at(split, what):
    made = [model(split, what) for _ in range(3)]
    found = []
    for seed, one in zip((1, 2), made[:2], strict=True):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        found.append(run(split, one).history)
        assert torch.equal(torch.get_rng_state(), before)  # it is the caller's, and is not changed
    assert same(weights(made[0]), weights(made[1])) and found[0] == found[1]
    run(split, made[2], {"seed": 6})
    assert not same(weights(made[0]), weights(made[2]))


def test_the_best_epoch_is_kept_not_the_last(split, monkeypatch):
    seen, scores = [], iter([10.0, 30.0, 20.0, 30.0])

    def validate(self):
        seen.append(weights(self.model))
        return next(scores)

    monkeypatch.setattr(loop._Run, "validate", validate)
    made = model(split)
    state = run(split, made)
    assert state.best == 30 and state.best_epoch == 1  # among equals the first
    assert same(weights(made), seen[1]) and not same(seen[1], seen[3])
    assert not made.training


@pytest.mark.parametrize(("patience", "epochs"), [(1, 3), (2, 6), (0, 8)])
def test_it_stops_after_as_many_worse_epochs_as_it_has_patience_for(split, monkeypatch, patience, epochs):
    scores = iter([1.0, 5.0, 4.0, 6.0, 5.0, 5.0, 5.0, 5.0])
    monkeypatch.setattr(loop._Run, "validate", lambda self: next(scores))
    state = run(split, model(split), {"epochs": 8, "patience": patience})
    assert len(state.history) == epochs and state.finished


def test_without_held_out_rows_the_lowest_loss_is_the_best(split):
    state = run(split, model(split), {"validation_fraction": 0.0, "patience": 1})
    assert len(state.history) == CONFIG["epochs"] and state.best == -min(entry["loss"] for entry in state.history)


def test_every_row_is_trained_on_once_an_epoch_and_held_out_rows_never(split):
    made = model(split)
    examples = Recording(made, split.X)
    loop.fit(made, examples, split.Y, loop.TrainConfig(**CONFIG))
    kept, held = loop.validation_split(len(split), 0.2, 5)
    assert np.array_equal(np.sort(np.concatenate([kept, held])), np.arange(len(split)))
    steps = -(-len(kept) // CONFIG["batch_size"])
    trained = examples.requested[True]
    assert len(trained) == steps * CONFIG["epochs"]
    epochs = [np.concatenate(trained[i : i + steps]) for i in range(0, len(trained), steps)]
    assert all(np.array_equal(np.sort(epoch), kept) for epoch in epochs)
    assert all(not np.array_equal(a, b) for a, b in itertools.pairwise(epochs))  # each in an order of its own
    assert set(np.concatenate(examples.requested[False])) == set(held)


@pytest.mark.parametrize(
    ("options", "of_features"),
    [({}, 3e-3), ({"feature_learning_rate": 0.05}, 0.05), ({"feature_learning_rate": 1e-9}, 1e-9)],
)
def test_the_steps_of_a_run_have_the_learning_rates_of_its_schedule(split, monkeypatch, options, of_features):
    used = {torch.optim.AdamW: [], RowAdam: []}
    for kind, rates in used.items():

        def step(self, step=kind.step, rates=rates):
            rates.append(self.param_groups[0]["lr"])
            step(self)

        monkeypatch.setattr(kind, "step", step)
    state = run(split, model(split), options)
    config, total = loop.TrainConfig(**CONFIG), state.steps * CONFIG["epochs"]
    factors = [config.schedule((i + 0.5) / total) for i in range(total)]
    assert min(factors) > 0
    assert used[torch.optim.AdamW] == pytest.approx([3e-3 * factor for factor in factors])
    assert used[RowAdam] == pytest.approx([of_features * factor for factor in factors])


class Clock:
    """A clock that only training moves on."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.mark.parametrize("limit", [50.0, 4.5])
def test_a_time_limit_is_kept_and_the_rate_has_then_fallen(split, monkeypatch, limit):
    """A step takes a second and a validation two."""
    clock, used = Clock(), []
    monkeypatch.setattr(loop, "time", clock)
    step, validate = loop._Run.step, loop._Run.validate

    def slow_step(self, index):
        clock.now += 1
        found = step(self, index)
        used.append(self.optimisers[0].param_groups[0]["lr"])
        return found

    def slow_validate(self):
        clock.now += 2
        return validate(self)

    monkeypatch.setattr(loop._Run, "step", slow_step)
    monkeypatch.setattr(loop._Run, "validate", slow_validate)
    state = run(split, model(split), {"epochs": 1000, "time_limit": limit})
    peak = CONFIG["learning_rate"]
    assert state.finished and len(used) < 100
    if limit == 50:
        assert state.seconds == clock.now - 1000 <= limit and max(used) > 0.9 * peak and used[-1] < 0.02 * peak
    else:  # no validation was seen yet, so its time could not be kept free
        assert state.seconds <= limit + 3 and len(used) == 5 and used[-1] < 0.1 * peak


@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clipping_is_torchs_own_on_dense_gradients_and_takes_sparse_ones(max_norm):
    generator = torch.Generator().manual_seed(0)
    grads = [torch.randn(shape, generator=generator) for shape in ((7, 3), (4,), ())]
    ours, theirs = ([nn.Parameter(torch.zeros_like(g)) for g in grads] for _ in range(2))
    for p, q, g in zip(ours, theirs, grads, strict=True):
        p.grad, q.grad = g.clone(), g.clone()
    rows = torch.tensor([[5, 1, 5]])  # a row twice: its gradients are summed
    values = torch.randn(3, 3, generator=generator)
    ours[0].grad = torch.sparse_coo_tensor(rows, values, (7, 3), check_invariants=True)
    theirs[0].grad = ours[0].grad.to_dense()
    loop.clip_gradients(iter(ours), max_norm)
    nn.utils.clip_grad_norm_(theirs, max_norm)
    for p, q in zip(ours, theirs, strict=True):
        assert_close(p.grad.to_dense() if p.grad.is_sparse else p.grad, q.grad)
    loop.clip_gradients(iter([nn.Parameter(torch.zeros(2))]), 1.0)  # nothing to clip


def test_weight_decay_is_for_matrices_and_rows_have_adam_of_their_own(split):
    made = model(split, "linear_skip")
    dense, rows = loop.optimisers(made, loop.TrainConfig(weight_decay=0.1))
    assert {id(p) for g in rows.param_groups for p in g["params"]} == {
        id(made.network.first.weight),
        id(made.network.linear_skip.weight),
    }
    assert [g["weight_decay"] for g in dense.param_groups] == [0.1, 0.0]
    assert all(p.ndim > 1 for p in dense.param_groups[0]["params"])
    assert all(p.ndim <= 1 for p in dense.param_groups[1]["params"])


def test_trained_label_vectors_have_a_learning_rate_of_their_own(split):
    made = model(split)
    made.head = hb.HolographicHead(24, split.Y.shape[1], 16, loss="query", trainable=("present", "labels"), seed=1)
    for options, rate in (({}, 3e-4), ({"label_learning_rate": 0.5}, 0.5)):
        dense, _, labels = loop.optimisers(made, loop.TrainConfig(**CONFIG, **options, weight_decay=0.1))
        assert [id(p) for group in labels.param_groups for p in group["params"]] == [id(made.head.codebook.bases)]
        assert (labels.defaults["lr"], labels.param_groups[0]["weight_decay"]) == (pytest.approx(rate), 0.0)
        assert dense.defaults["lr"] == 3e-3
        assert id(made.head.p) in {id(p) for group in dense.param_groups for p in group["params"]}


def test_the_log_has_a_line_of_json_for_each_epoch(split, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("of an earlier run\n")
    state = run(split, model(split), log=log)
    first, *lines = log.read_text().splitlines()
    lines = [json.loads(line) for line in lines]
    assert first == "of an earlier run" and [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert lines == [entry | times for entry, times in zip(state.history, state.timings, strict=True)]
    assert all(set(line) == {"epoch", "loss", "P@1", "seconds", "rows per second"} for line in lines)


def test_progress_is_reported_after_every_step_and_every_epoch(split):
    seen = []
    state = run(split, model(split), on_progress=lambda state, config: seen.append((state.epoch, state.step)))
    each = [*range(1, state.steps + 1)]
    assert seen == [place for e in range(4) for place in [*((e, s) for s in each), (e + 1, 0)]]


def test_inputs_without_labels_are_refused(split):
    made = model(split)
    with pytest.raises(OptionError, match="wants as many inputs as rows of labels; got 488 and 5"):
        loop.fit(made, made.examples(split.X), split.Y[:5])


def test_a_nan_loss_ends_the_run_with_advice(split):
    made = model(split)
    with torch.no_grad():
        made.network.first.weight.fill_(torch.nan)
    with pytest.raises(OptionError, match=r"the loss is nan at step 1 of epoch 1; take a learning_rate below 0\.003"):
        loop.fit(made, made.examples(split.X), split.Y, loop.TrainConfig(**CONFIG))


@pytest.mark.parametrize("metric", ["P@1", "P@5", "nDCG@3", "R@2", "P@100"])
def test_validation_metrics_are_those_of_the_metrics_module(split, metric):
    made = model(split)
    state = run(split, made, {"epochs": 1, "metric": metric})
    held = loop.validation_split(len(split), 0.2, 5)[1]
    name, _, k = metric.partition("@")
    top = made.top_k(split.X[held], min(int(k), made.n_labels))[1]
    wanted = {"P": metrics.precision_at_k, "nDCG": metrics.ndcg_at_k, "R": metrics.recall_at_k}[name](
        split.Y[held], top
    )
    assert state.history[0][metric] == pytest.approx(wanted[-1])


# Checkpoints


class Killed(Exception):  # noqa: N818
    """Raised to simulate a kill."""


def interrupted(split, made, path, when, what="fc", **options):
    """Runs that break off after `when` steps, with a checkpoint after every one, until one ends."""
    for restarts in itertools.count():
        made = model(split, what)
        left = iter(range(when))

        def report(state, config, left=left):
            if next(left, None) is None:
                raise Killed

        try:
            state = run(split, made, checkpoint=path, resume=True, checkpoint_seconds=0, on_progress=report, **options)
        except Killed:
            continue
        return made, state, restarts
    return None


@pytest.mark.parametrize("what", MODELS)
def test_an_interrupted_and_resumed_run_has_the_weights_of_an_uninterrupted_one(split, tmp_path, what):
    straight = model(split, what)
    state = run(split, straight)
    found, again, restarts = interrupted(split, model(split, what), tmp_path / "c", 6, what)
    assert restarts >= 6
    assert same(weights(found), weights(straight))
    assert again.history == state.history and again.best_epoch == state.best_epoch


def test_a_finished_run_is_not_trained_again(split, tmp_path):
    made = model(split)
    run(split, made, checkpoint=tmp_path / "c")
    other, reported = model(split), []
    state = run(split, other, checkpoint=tmp_path / "c", resume=True, on_progress=lambda *_: reported.append(1))
    assert state.finished and not reported and same(weights(made), weights(other)) and not other.training


def test_without_resume_a_run_begins_anew(split, tmp_path):
    made, other = model(split), model(split)
    run(split, made, {"epochs": 2}, checkpoint=tmp_path / "c")
    state = run(split, other, checkpoint=tmp_path / "c")
    assert len(state.history) == 4
    assert run(split, model(split), checkpoint=tmp_path / "missing", resume=True).finished


@pytest.mark.parametrize("what", ["fc", "linear_skip"])
def test_restored_optimiser_states_are_those_in_use(split, tmp_path, what):
    """Every optimiser's state is in the file, comes back to the bit, and the next step is taken from it."""
    with pytest.raises(Killed):
        run(split, model(split, what), checkpoint=tmp_path / "c", checkpoint_seconds=0, on_progress=killing_at(1, 3))
    tensors = storage.read(tmp_path / "c", "checkpoint", checkpoint.VERSION)[1]
    made = model(split, what)
    fabric = loop.launch()
    config = loop.TrainConfig(**CONFIG)
    resumed = loop._Run(made, made.examples(split.X), split.Y, config.resolve(len(split)), fabric, None)
    resumed.restore(tmp_path / "c")
    for wrapped, raw in zip(resumed.steppers, resumed.optimisers, strict=True):
        assert wrapped.optimizer is raw and len(raw.state) == sum(len(g["params"]) for g in raw.param_groups)
        assert wrapped.state is raw.state
    states = {name: tensor for name, tensor in tensors.items() if name.startswith("optimiser.")}
    assert {name.rpartition(".")[2] for name in states} == {
        *checkpoint.OPTIMISER_STATE[torch.optim.AdamW],
        "mean",
        "square",
        "steps",
    }
    steps = resumed.state.epoch * resumed.state.steps + resumed.state.step
    for name, parameter in made.named_parameters():
        state = next(o.state[parameter] for o in resumed.optimisers if parameter in o.state)
        for key, tensor in state.items():
            assert torch.equal(tensor, states[f"optimiser.{name}.{key}"])
        if "step" in state:
            assert state["step"] == steps
    resumed.step(next(resumed.batches()))
    assert resumed.optimisers[0].state[made.network.layers[0].weight]["step"] == steps + 1


def killing_at(epoch, step):
    def report(state, config):
        if (state.epoch, state.step) == (epoch, step):
            raise Killed

    return report


def test_a_checkpoint_is_renamed_into_place_and_what_a_kill_left_is_removed(split, tmp_path, monkeypatch):
    path = tmp_path / "c"
    run(split, model(split), {"epochs": 1}, checkpoint=path)
    old = path.read_bytes()

    def half(tensors, name, metadata):
        Path(name).write_bytes(b"half")
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(storage, "save_file", half)
        with pytest.raises(Killed):
            run(split, model(split), checkpoint=path)
    assert path.read_bytes() == old and names(tmp_path) == ["c"]
    left = tmp_path / ".holobind-4194305-0123456789abcdef.part"  # by a number that no process has
    left.mkdir()
    (left / "c").write_bytes(b"half")
    run(split, model(split), checkpoint=path)
    assert names(tmp_path) == ["c"] and path.read_bytes() != old


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 6},
        {"learning_rate": 1e-3},
        {"feature_learning_rate": 1e-3},
        {"batch_size": 16},
        {"epochs": 5},
        "labels",
        "features",
        "values",
        "rows",
        "model",
        "head",
        "order",
    ],
    ids=str,
)
def test_a_checkpoint_of_another_run_is_refused(split, tmp_path, change):
    run(split, model(split), checkpoint=tmp_path / "c")
    options = {"checkpoint": tmp_path / "c", "resume": True}
    made, other, config = model(split), split, {}
    if change == "labels":
        Y = split.Y.copy()
        Y.indices = (Y.indices + 1) % Y.shape[1]
        other = hb.data.Split(split.X, Y)
    elif change in ("features", "values"):
        X = split.X.copy()
        if change == "values":
            X.data[len(X.data) // 3] += 0.25
        else:
            X.indices[X.indptr[7]] = np.setdiff1d(np.arange(X.shape[1]), X[[7]].indices)[0]
            X.sort_indices()
        other = hb.data.Split(X, split.Y)
    elif change == "rows":
        other = hb.data.Split(split.X[:-1], split.Y[:-1])
    elif change == "model":
        made = model(split, "bce")
    elif change == "head":
        made.head = hb.HolographicHead(24, split.Y.shape[1], 16, loss="query", seed=2)
    elif change == "order":
        made = hb.Model(made.network, made.head, made.frequencies, label_order=made.label_order[::-1])
    else:
        config = change
    before = weights(made)
    with pytest.raises(FileError, match=r"c is of a run with other data or options; .* remove it to start anew$"):
        run(other, made, config, **options)
    assert same(weights(made), before)


def test_a_run_resumes_with_another_time_limit(split, tmp_path):
    run(split, model(split), checkpoint=tmp_path / "c")
    assert run(split, model(split), {"time_limit": 1e6}, checkpoint=tmp_path / "c", resume=True).finished


def _cut(path):
    path.write_bytes(path.read_bytes()[:-10])


def _rewritten(change):
    def damage(path):
        header, tensors = storage.read(path, "checkpoint", checkpoint.VERSION)
        change(header, tensors)
        storage.write(path, header.pop("kind"), header.pop("version"), header, tensors)

    return damage


DAMAGE = {
    "cut": _cut,
    "empty": lambda path: path.write_bytes(b""),
    "a model file": _rewritten(lambda header, tensors: header.update(kind="model")),
    "a newer version": _rewritten(lambda header, tensors: header.update(version=checkpoint.VERSION + 1)),
    "a weight gone": _rewritten(lambda header, tensors: tensors.pop("model.network.first_bias")),
    "a weight of another shape": _rewritten(lambda h, t: t.update({"best.network.first_bias": torch.zeros(3)})),
    "a state gone": _rewritten(lambda header, tensors: tensors.pop("optimiser.network.first.weight.mean")),
    "a state too short": _rewritten(
        lambda header, tensors: tensors.update({"optimiser.network.first.weight.square": torch.zeros(2)})
    ),
    "a strange tensor": _rewritten(lambda header, tensors: tensors.update({"extra": torch.zeros(2)})),
    "no progress": _rewritten(lambda header, tensors: header.pop("state")),
    "progress of another kind": _rewritten(lambda header, tensors: header["state"].update(epoch="1")),
    "progress beyond the end": _rewritten(lambda header, tensors: header["state"].update(step=10**9)),
    "a strange progress": _rewritten(lambda header, tensors: header["state"].update(more=1)),
    "a strange history": _rewritten(lambda header, tensors: header["state"].update(history=[1, 2, 3, 4])),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_or_foreign_checkpoint_is_refused_in_one_line(split, tmp_path, damage):
    path = tmp_path / "c"
    run(split, model(split), checkpoint=path)
    DAMAGE[damage](path)
    with pytest.raises(FileError) as error:
        run(split, model(split), checkpoint=path, resume=True)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("when", ["before the checkpoint", "between the checkpoint and the log", "within a line"])
def test_the_log_of_a_resumed_run_has_every_epoch_once(split, tmp_path, monkeypatch, when):
    """Also where the run is killed between an epoch's checkpoint and its line. Lines of others stay."""
    log, path = tmp_path / "log", tmp_path / "c"
    log.write_text('{"epoch": 4}\nof an earlier run')
    add_lines = loop.add_lines

    def add_all_but_the_third(log, lines):
        if lines and '"epoch": 3' in lines[0]:
            if when == "within a line":
                log.open("a").write(lines[0][:20])
            raise Killed
        add_lines(log, lines)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        if when == "before the checkpoint":
            run(split, model(split), checkpoint=path, log=log, on_progress=killing_at(3, 0))
        patch.setattr(loop, "add_lines", add_all_but_the_third)
        run(split, model(split), checkpoint=path, log=log)
    state = run(split, model(split), checkpoint=path, log=log, resume=True)
    found = log.read_text().splitlines()
    assert found[:2] == ['{"epoch": 4}', "of an earlier run"] and found[-1].startswith('{"epoch": 4, ')
    lines = [entry | times for entry, times in zip(state.history, state.timings, strict=True)]
    assert [json.loads(line) for line in found[2:] if line.endswith("}")] == lines
    assert len(found) == 2 + 4 + (when == "within a line")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_checkpoint_and_restores_the_handlers(split, tmp_path, number):
    before = signal.getsignal(number)

    def report(state, config):
        if (state.epoch, state.step) == (1, 2):
            signal.raise_signal(number)

    with pytest.raises(loop.TrainingInterrupted):
        run(split, model(split), checkpoint=tmp_path / "c", on_progress=report)
    assert signal.getsignal(number) is before
    straight, made = model(split), model(split)
    state, again = run(split, straight), run(split, made, checkpoint=tmp_path / "c", resume=True)
    assert same(weights(straight), weights(made)) and state.history == again.history


@pytest.mark.parametrize("seconds", [0.0, 2.0])
def test_a_second_signal_ends_it_at_once_but_not_the_echo_of_the_first(split, monkeypatch, seconds):
    """`timeout` sends its signal to the process and to its group."""
    clock = Clock()
    monkeypatch.setattr(loop, "time", clock)

    def report(state, config):
        signal.raise_signal(signal.SIGTERM)
        clock.now += seconds
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt if seconds else loop.TrainingInterrupted):
        run(split, model(split), on_progress=report)


# Real processes


@pytest.fixture(scope="module")
def start():
    """Start a process of its own, which need not import everything again; gives it and the pipe of its reports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["holobind.training.learning"])

    def begin(*arguments):
        ours, its = context.Pipe(duplex=False)
        process = context.Process(target=main, args=(list(map(str, arguments)), its))
        process.start()
        its.close()
        return process, ours

    return begin


def test_a_run_killed_at_random_steps_and_resumed_has_the_weights_of_an_uninterrupted_one(split, tmp_path, start):
    """A real process every time, which gets its signal some steps after its (re)start."""
    out, path, chance = tmp_path / "run", tmp_path / "c", random.Random(0)
    arguments = (out, "--checkpoint", path, "--resume", "--every", 0, "--slow", 0.002, "--what", "linear_skip")
    reached = []
    for number in (*[signal.SIGKILL] * 4, signal.SIGTERM, signal.SIGINT):
        process, reported = start(*arguments)
        for _ in range(chance.randint(2, 8)):
            place = reported.recv()
        os.kill(process.pid, number)
        process.join(60)
        stopped = Path(f"{out}.stopped")
        killed = number == signal.SIGKILL
        assert process.exitcode == (-number if killed else 0) and stopped.exists() == (not killed)
        stopped.unlink(missing_ok=True)
        reached.append(place)
    process, _ = start(*arguments)
    process.join(60)
    assert process.exitcode == 0 and reached == sorted(reached) and (1, 0) < reached[-1] < (4, 0)
    straight = model(split, "linear_skip")
    state = run(split, straight)
    assert same(load_file(f"{out}.safetensors"), weights(straight))
    again = json.loads(Path(f"{out}.json").read_text())
    assert again["history"] == state.history
    assert names(tmp_path) == ["c", "run.json", "run.safetensors"]


def test_without_held_out_rows_there_is_no_metric_and_the_loss_decides(split):
    state = run(split, model(split), {"epochs": 3, "validation_fraction": 0.0})
    assert all("P@1" not in entry for entry in state.history)
    assert state.best_epoch == int(np.argmin([entry["loss"] for entry in state.history]))


def test_a_warm_start_that_no_epoch_betters_is_kept(split):
    made = model(split)
    run(split, made, {})
    before = weights(made)
    state = loop.fit(
        made, made.examples(split.X), split.Y, loop.TrainConfig(**{**CONFIG, "learning_rate": 1.0}), warm_start=True
    )
    assert state.best_epoch == -1
    assert state.best > max(entry["P@1"] for entry in state.history)
    assert same(before, weights(made))


def test_validation_holds_whole_groups_out():
    groups = np.arange(60) // 5
    kept, held = loop.validation_split(60, 0.2, 5, groups)
    assert len(held) == 10 and not set(groups[kept]) & set(groups[held])
