"""Training learns, keeps the best, is repeatable, and survives whatever ends its process."""

import itertools
import json
import math
import multiprocessing
import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.training import PLAN, data, main, model, run, same, timeless, weights
from safetensors.torch import load_file
from torch import nn
from torch.testing import assert_close

import holobind as hb
from holobind import _storage as storage
from holobind import metrics
from holobind.errors import FileError, OptionError
from holobind.training import checkpoint
from holobind.training import loop as train
from holobind.training.optimiser import RowAdam

MODELS = ("fc", "linear_skip", "linear", "bce")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def part():
    return data()


def names(place):
    return sorted(path.name for path in place.iterdir())


class Recording:
    """Examples that remember which rows were asked for, and whether for training."""

    sizes = None

    def __init__(self, made, X):
        self.made, self.inner, self.asked = made, made.examples(X), {True: [], False: []}

    def __len__(self):
        return len(self.inner)

    def batch(self, index):
        self.asked[self.made.training].append(index.copy())
        return self.inner.batch(index)


@pytest.mark.parametrize("what", MODELS)
def test_it_learns(part, what):
    made = model(part, what)
    at = run(part, made, {"epochs": 10, "learning_rate": 1e-2})
    losses = [entry["loss"] for entry in at.history]
    assert losses[-1] < 0.8 * losses[0]
    rows, held = train.split(len(part), 0.2, 5)
    frequent = np.argsort(-metrics.frequencies(part.Y[rows]).counts, kind="stable")[:1]
    guess = metrics.precision_at_k(part.Y[held], np.tile(frequent, (len(held), 1)))[0]
    assert at.best > guess + 10
    found = metrics.precision_at_k(part.Y[held], made.top_k(part.X[held], 1)[1])[0]
    assert found == pytest.approx(at.best)


@pytest.mark.parametrize("what", MODELS)
def test_one_seed_gives_one_model_whatever_torchs_own_generator_is_at(part, what):
    made = [model(part, what) for _ in range(3)]
    found = []
    for seed, one in zip((1, 2), made[:2], strict=True):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        found.append(run(part, one).history)
        assert torch.equal(torch.get_rng_state(), before)  # it is the caller's, and stays where it was
    assert same(weights(made[0]), weights(made[1])) and timeless(found[0]) == timeless(found[1])
    run(part, made[2], {"seed": 6})
    assert not same(weights(made[0]), weights(made[2]))


def test_the_best_epoch_is_kept_not_the_last(part, monkeypatch):
    seen, scores = [], iter([10.0, 30.0, 20.0, 30.0])

    def measure(self):
        seen.append(weights(self.model))
        return next(scores)

    monkeypatch.setattr(train._Run, "measure", measure)
    made = model(part)
    at = run(part, made)
    assert at.best == 30 and at.best_epoch == 1  # among equals the first
    assert same(weights(made), seen[1]) and not same(seen[1], seen[3])
    assert not made.training


@pytest.mark.parametrize(("patience", "epochs"), [(1, 3), (2, 6), (0, 8)])
def test_it_stops_after_as_many_worse_epochs_as_it_has_patience_for(part, monkeypatch, patience, epochs):
    scores = iter([1.0, 5.0, 4.0, 6.0, 5.0, 5.0, 5.0, 5.0])
    monkeypatch.setattr(train._Run, "measure", lambda self: next(scores))
    at = run(part, model(part), {"epochs": 8, "patience": patience})
    assert len(at.history) == epochs and at.finished


def test_without_rows_held_out_the_lowest_loss_is_the_best(part):
    at = run(part, model(part), {"validation": 0.0, "patience": 1})
    assert len(at.history) == PLAN["epochs"] and at.best == -min(entry["loss"] for entry in at.history)


def test_every_row_is_trained_on_once_an_epoch_and_rows_held_out_never(part):
    made = model(part)
    examples = Recording(made, part.X)
    train.fit(made, examples, part.Y, train.TrainConfig(**PLAN))
    kept, held = train.split(len(part), 0.2, 5)
    assert np.array_equal(np.sort(np.concatenate([kept, held])), np.arange(len(part)))
    steps = -(-len(kept) // PLAN["batch_size"])
    trained = examples.asked[True]
    assert len(trained) == steps * PLAN["epochs"]
    epochs = [np.concatenate(trained[i : i + steps]) for i in range(0, len(trained), steps)]
    assert all(np.array_equal(np.sort(epoch), kept) for epoch in epochs)
    assert all(not np.array_equal(a, b) for a, b in itertools.pairwise(epochs))  # each in an order of its own
    assert set(np.concatenate(examples.asked[False])) == set(held)


def test_the_rate_rises_then_falls_to_nothing():
    plan = train.TrainConfig(warmup=0.1)
    paces = [plan.pace(done) for done in np.linspace(0, 1, 101)]
    assert paces[0] == 0 and paces[5] == pytest.approx(0.5) and paces[10] == pytest.approx(1) == max(paces)
    assert paces[55] == pytest.approx(0.5) and paces[-1] == pytest.approx(0, abs=1e-12)
    assert all(a > b for a, b in itertools.pairwise(paces[10:]))
    assert train.TrainConfig(warmup=0).pace(0) == 1 and plan.pace(1.5) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("said", "of_features"), [({}, 3e-3), ({"feature_learning_rate": 0.05}, 0.05), ({"feature_learning_rate": 0.0}, 0)]
)
def test_the_steps_of_a_run_take_the_rates_of_its_plan(part, monkeypatch, said, of_features):
    used = {torch.optim.AdamW: [], RowAdam: []}
    for kind, rates in used.items():

        def step(self, step=kind.step, rates=rates):
            rates.append(self.param_groups[0]["lr"])
            step(self)

        monkeypatch.setattr(kind, "step", step)
    at = run(part, model(part), said)
    plan, total = train.TrainConfig(**PLAN), at.steps * PLAN["epochs"]
    paces = [plan.pace((i + 0.5) / total) for i in range(total)]
    assert min(paces) > 0
    assert used[torch.optim.AdamW] == pytest.approx([3e-3 * pace for pace in paces])
    assert used[RowAdam] == pytest.approx([of_features * pace for pace in paces])


class Clock:
    """A clock that only training moves on."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.mark.parametrize("limit", [50.0, 4.5])
def test_a_time_limit_is_kept_and_the_rate_has_then_fallen(part, monkeypatch, limit):
    """A step takes a second and a validation two."""
    clock, used = Clock(), []
    monkeypatch.setattr(train, "time", clock)
    step, measure = train._Run.step, train._Run.measure

    def slow_step(self, index):
        clock.now += 1
        found = step(self, index)
        used.append(self.optimisers[0].param_groups[0]["lr"])
        return found

    def slow_measure(self):
        clock.now += 2
        return measure(self)

    monkeypatch.setattr(train._Run, "step", slow_step)
    monkeypatch.setattr(train._Run, "measure", slow_measure)
    at = run(part, model(part), {"epochs": 1000, "time_limit": limit})
    peak = PLAN["learning_rate"]
    assert at.finished and len(used) < 100
    if limit == 50:
        assert at.seconds == clock.now - 1000 <= limit and max(used) > 0.9 * peak and used[-1] < 0.02 * peak
    else:  # no validation was seen yet, so its time could not be kept free
        assert at.seconds <= limit + 3 and len(used) == 5 and used[-1] < 0.1 * peak


@pytest.mark.parametrize("max_tokens", [0.5, 100.0])
def test_clipping_is_torchs_own_on_dense_gradients_and_takes_sparse_ones(max_tokens):
    generator = torch.Generator().manual_seed(0)
    grads = [torch.randn(shape, generator=generator) for shape in ((7, 3), (4,), ())]
    ours, theirs = ([nn.Parameter(torch.zeros_like(g)) for g in grads] for _ in range(2))
    for p, q, g in zip(ours, theirs, grads, strict=True):
        p.grad, q.grad = g.clone(), g.clone()
    rows = torch.tensor([[5, 1, 5]])  # said twice: what counts is their sum
    values = torch.randn(3, 3, generator=generator)
    ours[0].grad = torch.sparse_coo_tensor(rows, values, (7, 3), check_invariants=True)
    theirs[0].grad = ours[0].grad.to_dense()
    train.clip(iter(ours), max_tokens)
    nn.utils.clip_grad_norm_(theirs, max_tokens)
    for p, q in zip(ours, theirs, strict=True):
        assert_close(p.grad.to_dense() if p.grad.is_sparse else p.grad, q.grad)
    train.clip(iter([nn.Parameter(torch.zeros(2))]), 1.0)  # nothing to clip


def test_weight_decay_is_for_matrices_and_rows_have_adam_of_their_own(part):
    made = model(part, "linear_skip")
    dense, rows = train.optimisers(made, train.TrainConfig(weight_decay=0.1))
    assert {id(p) for g in rows.param_groups for p in g["params"]} == {
        id(made.network.first.weight),
        id(made.network.linear_skip.weight),
    }
    assert [g["weight_decay"] for g in dense.param_groups] == [0.1, 0.0]
    assert all(p.ndim > 1 for p in dense.param_groups[0]["params"])
    assert all(p.ndim <= 1 for p in dense.param_groups[1]["params"])


def test_the_log_has_a_line_of_json_for_each_epoch(part, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("of an earlier run\n")
    at = run(part, model(part), log=log)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines == at.history and [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert all(set(line) == {"epoch", "loss", "P@1", "seconds", "rows a second"} for line in lines)


def test_progress_is_told_after_every_step_and_every_epoch(part):
    seen = []
    at = run(part, model(part), on_progress=lambda at, plan: seen.append((at.epoch, at.step)))
    each = [*range(1, at.steps + 1)]
    assert seen == [place for e in range(4) for place in [*((e, s) for s in each), (e + 1, 0)]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epochs": 0}, "train: epochs must be 1 or more; got 0"),
        ({"batch_size": -1}, "train: batch_size must be 1 or more; got -1"),
        ({"learning_rate": math.nan}, "train: learning_rate must be a number and not negative; got nan"),
        ({"feature_learning_rate": -1.0}, "train: feature_learning_rate must be a number and not negative; got -1.0"),
        ({"clip": -1.0}, "train: clip must be a number and not negative; got -1.0"),
        ({"seed": -1}, "train: seed must be a number and not negative; got -1"),
        ({"validation": 1.0}, "train: validation is a share from 0 to below 1; got 1.0"),
        ({"warmup": -0.1}, "train: warmup is a share from 0 to below 1; got -0.1"),
        ({"time_limit": 0.0}, "train: time_limit must be positive; got 0.0"),
        ({"precision": "16-mixed"}, "train: precision must be one of 32-true, bf16-mixed; got '16-mixed'"),
        ({"measure": "F1"}, "train: measure must be one of P, nDCG, R @k; got 'F1'"),
        ({"measure": "P@0"}, "train: measure must be one of P, nDCG, R @k; got 'P@0'"),
    ],
)
def test_a_wrong_option_is_told_in_one_line(options, said):
    with pytest.raises(OptionError) as error:
        train.TrainConfig(**options)
    assert str(error.value) == said


def test_inputs_without_labels_are_told(part):
    made = model(part)
    with pytest.raises(OptionError, match="wants as many inputs as rows of labels; got 488 and 5"):
        train.fit(made, made.examples(part.X), part.Y[:5])


def test_a_loss_that_is_no_number_ends_the_run_and_says_what_to_do(part):
    made = model(part)
    with torch.no_grad():
        made.network.first.weight.fill_(torch.nan)
    with pytest.raises(OptionError, match=r"the loss is nan at step 1 of epoch 1; take a learning_rate below 0\.003"):
        train.fit(made, made.examples(part.X), part.Y, train.TrainConfig(**PLAN))


@pytest.mark.parametrize("measure", ["P@1", "P@5", "nDCG@3", "R@2", "P@100"])
def test_measures_of_held_out_rows_are_the_librarys(part, measure):
    made = model(part)
    at = run(part, made, {"epochs": 1, "measure": measure})
    held = train.split(len(part), 0.2, 5)[1]
    name, _, k = measure.partition("@")
    top = made.top_k(part.X[held], min(int(k), made.n_labels))[1]
    wanted = {"P": metrics.precision_at_k, "nDCG": metrics.ndcg_at_k, "R": metrics.recall_at_k}[name](part.Y[held], top)
    assert at.history[0][measure] == pytest.approx(wanted[-1])


# Checkpoints


class Killed(Exception):  # noqa: N818
    """Raised in place of a kill."""


def interrupted(part, made, path, when, what="fc", **options):
    """Runs that break off after `when` steps, with a checkpoint after every one, until one ends."""
    for restarts in itertools.count():
        made = model(part, what)
        left = iter(range(when))

        def tell(at, plan, left=left):
            if next(left, None) is None:
                raise Killed

        try:
            at = run(part, made, checkpoint=path, resume=True, every=0, on_progress=tell, **options)
        except Killed:
            continue
        return made, at, restarts
    return None


@pytest.mark.parametrize("what", MODELS)
def test_a_run_in_pieces_is_the_run_without(part, tmp_path, what):
    straight = model(part, what)
    at = run(part, straight)
    found, again, restarts = interrupted(part, model(part, what), tmp_path / "c", 6, what)
    assert restarts >= 6
    assert same(weights(found), weights(straight))
    assert timeless(again.history) == timeless(at.history) and again.best_epoch == at.best_epoch


def test_a_finished_run_is_not_trained_again(part, tmp_path):
    made = model(part)
    run(part, made, checkpoint=tmp_path / "c")
    other, told = model(part), []
    at = run(part, other, checkpoint=tmp_path / "c", resume=True, on_progress=lambda *_: told.append(1))
    assert at.finished and not told and same(weights(made), weights(other)) and not other.training


def test_without_resume_a_run_begins_anew(part, tmp_path):
    made, other = model(part), model(part)
    run(part, made, {"epochs": 2}, checkpoint=tmp_path / "c")
    at = run(part, other, checkpoint=tmp_path / "c")
    assert len(at.history) == 4
    assert run(part, model(part), checkpoint=tmp_path / "missing", resume=True).finished


@pytest.mark.parametrize("what", ["fc", "linear_skip"])
def test_the_states_that_are_restored_are_the_ones_in_use(part, tmp_path, what):
    """Every optimiser's state is in the file, comes back to the bit, and the next step is taken from it."""
    with pytest.raises(Killed):
        run(part, model(part, what), checkpoint=tmp_path / "c", every=0, on_progress=killing_at(1, 3))
    tensors = storage.read(tmp_path / "c", "checkpoint", 1)[1]
    made = model(part, what)
    fabric = train.launch()
    plan = train.TrainConfig(**PLAN)
    resumed = train._Run(made, made.examples(part.X), part.Y, plan, fabric, tmp_path / "c", None, None, 600.0, False)
    resumed.restore()
    for wrapped, raw in zip(resumed.steppers, resumed.optimisers, strict=True):
        assert wrapped.optimizer is raw and len(raw.state) == sum(len(g["params"]) for g in raw.param_groups)
        assert wrapped.state is raw.state
    hidden_size = {name: tensor for name, tensor in tensors.items() if name.startswith("optimiser.")}
    assert {name.rpartition(".")[2] for name in hidden_size} == {
        *checkpoint.KEPT[torch.optim.AdamW],
        "mean",
        "square",
        "steps",
    }
    steps = resumed.at.epoch * resumed.at.steps + resumed.at.step
    for name, parameter in made.named_parameters():
        state = next(o.state[parameter] for o in resumed.optimisers if parameter in o.state)
        for key, tensor in state.items():
            assert torch.equal(tensor, hidden_size[f"optimiser.{name}.{key}"])
        if "step" in state:
            assert state["step"] == steps
    resumed.step(next(resumed.batches()))
    assert resumed.optimisers[0].state[made.network.layers[0].weight]["step"] == steps + 1


def killing_at(epoch, step):
    def tell(at, plan):
        if (at.epoch, at.step) == (epoch, step):
            raise Killed

    return tell


def test_a_checkpoint_is_renamed_into_place_and_what_a_kill_left_is_removed(part, tmp_path, monkeypatch):
    path = tmp_path / "c"
    run(part, model(part), {"epochs": 1}, checkpoint=path)
    old = path.read_bytes()

    def half(tensors, name, metadata):
        Path(name).write_bytes(b"half")
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(storage, "save_file", half)
        with pytest.raises(Killed):
            run(part, model(part), checkpoint=path)
    assert path.read_bytes() == old and names(tmp_path) == ["c"]
    (tmp_path / "c.123.part").write_bytes(b"half")
    run(part, model(part), checkpoint=path)
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
        "rows",
        "model",
        "head",
        "order",
    ],
    ids=str,
)
def test_a_checkpoint_of_another_run_is_refused(part, tmp_path, change):
    run(part, model(part), checkpoint=tmp_path / "c")
    options = {"checkpoint": tmp_path / "c", "resume": True}
    made, other, plan = model(part), part, {}
    if change == "labels":
        Y = part.Y.copy()
        Y.indices = (Y.indices + 1) % Y.shape[1]
        other = hb.data.Split(part.X, Y)
    elif change == "rows":
        other = hb.data.Split(part.X[:-1], part.Y[:-1])
    elif change == "model":
        made = model(part, "bce")
    elif change == "head":
        made.head = hb.HolographicHead(24, part.Y.shape[1], 16, loss="query", seed=2)
    elif change == "order":
        made = hb.Model(made.network, made.head, made.frequencies, label_order=made.label_order[::-1])
    else:
        plan = change
    before = weights(made)
    with pytest.raises(FileError, match=r"c is of a run with other data or options; .* remove it to start anew$"):
        run(other, made, plan, **options)
    assert same(weights(made), before)


def test_more_time_is_no_other_run(part, tmp_path):
    run(part, model(part), checkpoint=tmp_path / "c")
    assert run(part, model(part), {"time_limit": 1e6}, checkpoint=tmp_path / "c", resume=True).finished


def _cut(path):
    path.write_bytes(path.read_bytes()[:-10])


def _rewritten(change):
    def damage(path):
        header, tensors = storage.read(path, "checkpoint", 1)
        change(header, tensors)
        storage.write(path, header.pop("kind"), header.pop("version"), header, tensors)

    return damage


DAMAGE = {
    "cut": _cut,
    "empty": lambda path: path.write_bytes(b""),
    "a model file": _rewritten(lambda header, tensors: header.update(kind="model")),
    "a newer version": _rewritten(lambda header, tensors: header.update(version=2)),
    "a weight gone": _rewritten(lambda header, tensors: tensors.pop("model.network.offset")),
    "a weight of another shape": _rewritten(lambda h, t: t.update({"best.network.offset": torch.zeros(3)})),
    "a state gone": _rewritten(lambda header, tensors: tensors.pop("optimiser.network.first.weight.mean")),
    "a state too short": _rewritten(
        lambda header, tensors: tensors.update({"optimiser.network.first.weight.square": torch.zeros(2)})
    ),
    "a strange tensor": _rewritten(lambda header, tensors: tensors.update({"extra": torch.zeros(2)})),
    "no progress": _rewritten(lambda header, tensors: header.pop("progress")),
    "progress of another kind": _rewritten(lambda header, tensors: header["progress"].update(epoch="1")),
    "progress beyond the end": _rewritten(lambda header, tensors: header["progress"].update(step=10**9)),
    "a strange progress": _rewritten(lambda header, tensors: header["progress"].update(more=1)),
    "a strange history": _rewritten(lambda header, tensors: header["progress"].update(history=[1, 2, 3, 4])),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_or_foreign_checkpoint_is_refused_in_one_line(part, tmp_path, damage):
    path = tmp_path / "c"
    run(part, model(part), checkpoint=path)
    DAMAGE[damage](path)
    with pytest.raises(FileError) as error:
        run(part, model(part), checkpoint=path, resume=True)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_the_log_of_a_resumed_run_has_every_epoch_once(part, tmp_path):
    """A kill between the line of an epoch and its checkpoint must not leave that line twice."""
    log, path = tmp_path / "log", tmp_path / "c"
    with pytest.raises(Killed):  # told between the two
        run(part, model(part), checkpoint=path, log=log, on_progress=killing_at(3, 0))
    assert len(log.read_text().splitlines()) == 3
    at = run(part, model(part), checkpoint=path, log=log, resume=True)
    assert [json.loads(line) for line in log.read_text().splitlines()] == at.history and len(at.history) == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_it_leaves_a_checkpoint_and_handlers_as_they_were(part, tmp_path, number):
    before = signal.getsignal(number)

    def tell(at, plan):
        if (at.epoch, at.step) == (1, 2):
            signal.raise_signal(number)

    with pytest.raises(train.Stopped):
        run(part, model(part), checkpoint=tmp_path / "c", on_progress=tell)
    assert signal.getsignal(number) is before
    straight, made = model(part), model(part)
    at, again = run(part, straight), run(part, made, checkpoint=tmp_path / "c", resume=True)
    assert same(weights(straight), weights(made)) and timeless(at.history) == timeless(again.history)


@pytest.mark.parametrize("seconds", [0.0, 2.0])
def test_a_second_signal_ends_it_at_once_but_not_the_echo_of_the_first(part, monkeypatch, seconds):
    """`timeout` sends its signal to the process and to its group."""
    clock = Clock()
    monkeypatch.setattr(train, "time", clock)

    def tell(at, plan):
        signal.raise_signal(signal.SIGTERM)
        clock.now += seconds
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt if seconds else train.Stopped):
        run(part, model(part), on_progress=tell)


# Real processes


@pytest.fixture(scope="module")
def start():
    """Start a process of its own, which need not import everything again; gives it and what it tells."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["holobind.learning"])

    def begin(*arguments):
        ours, its = context.Pipe(duplex=False)
        process = context.Process(target=main, args=(list(map(str, arguments)), its))
        process.start()
        its.close()
        return process, ours

    return begin


def test_killed_at_random_points_and_resumed_it_ends_as_if_nothing_had_been(part, tmp_path, start):
    """A real process every time, which gets its signal some steps after its (re)start."""
    out, path, chance = tmp_path / "run", tmp_path / "c", random.Random(0)
    arguments = (out, "--checkpoint", path, "--resume", "--every", 0, "--slow", 0.002, "--what", "linear_skip")
    reached = []
    for number in (*[signal.SIGKILL] * 4, signal.SIGTERM, signal.SIGINT):
        process, told = start(*arguments)
        for _ in range(chance.randint(2, 8)):
            place = told.recv()
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
    straight = model(part, "linear_skip")
    at = run(part, straight)
    assert same(load_file(f"{out}.safetensors"), weights(straight))
    again = json.loads(Path(f"{out}.json").read_text())
    assert timeless(again["history"]) == timeless(at.history)
    assert names(tmp_path) == ["c", "run.json", "run.safetensors"]


def test_without_rows_held_out_there_is_no_measure_and_the_loss_decides(part):
    at = run(part, model(part), {"epochs": 3, "validation": 0.0})
    assert all("P@1" not in entry for entry in at.history)
    assert at.best_epoch == int(np.argmin([entry["loss"] for entry in at.history]))


def test_a_warm_start_that_no_epoch_betters_is_kept(part):
    made = model(part)
    run(part, made, {})
    before = weights(made)
    at = train.fit(made, made.examples(part.X), part.Y, train.TrainConfig(**{**PLAN, "learning_rate": 1.0}), warm=True)
    assert at.best_epoch == -1
    assert at.best > max(entry["P@1"] for entry in at.history)
    assert same(before, weights(made))
