"""The training loop, for any network and head, on one process or many (Lightning Fabric).

Every random choice follows from (seed, epoch, step, process): the split, the order of an epoch, dropout. A run that is
stopped and resumed from its checkpoint therefore ends with the same weights as an uninterrupted one.

Several processes (torchrun) divide every batch: each reads its rows, DistributedDataParallel sums the gradients, and
all take the same step. At each step one all-reduce of three values gives all of them the same loss, the same clock and
the same decision to stop.
"""

import json
import math
import os
import signal
import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from holobind import metrics
from holobind._files import add_lines
from holobind._processes import leave_at_exit
from holobind._types import CsrArray, IntArray, RowIndex
from holobind.data.batches import Examples, length_buckets, prediction_batches, ragged_labels
from holobind.data.csr import checked_csr, take_rows
from holobind.data.holdout import MAX_HELD_OUT_ROWS, holdout
from holobind.errors import FileError, OptionError, TrainingInterrupted
from holobind.model import MAX_BATCH_ROWS, Model
from holobind.networks.sharded import join_shards, sharded_layers
from holobind.training import checkpoint as checkpoints
from holobind.training.config import TrainConfig
from holobind.training.optimiser import optimisers, sparse_weights
from holobind.training.state import TrainState

CHECKPOINT_SECONDS = 600.0
REPEATED_SIGNAL_SECONDS = 1.0  # a signal that comes again within this time counts once

METRIC_FUNCTIONS = {"P": metrics.precision_at_k, "nDCG": metrics.ndcg_at_k, "R": metrics.recall_at_k}

TrainCallback = Callable[[TrainState, TrainConfig], None]


def fit(
    model: Model,
    examples: Examples,
    Y: CsrArray,
    config: TrainConfig | None = None,
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    log: Path | None = None,
    on_progress: TrainCallback | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    warm_start: bool = False,
    constant_rate: bool = False,
    options: Mapping[str, Any] | None = None,
    groups: IntArray | None = None,
    fabric: Fabric | None = None,
) -> TrainState:
    """Train `model` in place; it ends with the weights of its best epoch.

    checkpoint      a file to resume from, written after each epoch, every `checkpoint_seconds` and on a signal to stop
    resume          continue from it, if it exists; the result is that of an uninterrupted run, to the bit (but not with
                    a time limit, which makes the learning rate depend on the clock)
    log             a file to which a line of JSON is added for each epoch; what it has before stays
    warm_start      the model was trained or solved before: if no epoch is better than its start, it ends unchanged
    constant_rate   keep the learning rate at its peak, for one pass over each of many portions of data
    options         of the model; a run is resumed only with the same ones
    groups          ids from 0 on (`data.holdout.group_ids`): whole groups are held out, not single rows

    Under torchrun all processes call it with the same arguments; the checkpoint is on a file system that they share.
    """
    if len(examples) != Y.shape[0] or len(examples) < 1:
        raise OptionError(f"train: wants as many inputs as rows of labels; got {len(examples)} and {Y.shape[0]}")
    Y = checked_csr(Y, "Y", model.n_labels)
    config = (config or TrainConfig()).resolve(len(examples))
    fabric = fabric or launch(config.precision, sparse=bool(sparse_weights(model)))
    run = _Run(model, examples, Y, config, fabric, on_progress, groups)
    run.checkpoint, run.log, run.checkpoint_seconds = checkpoint, log if run.is_main else None, checkpoint_seconds
    run.warm_start, run.constant_rate, run.options = warm_start, constant_rate, dict(options or {})
    if resume and checkpoint is not None:
        run.restore(checkpoint)
    run.run()
    state = run.state
    del run  # and the optimisers' states, before the rows of other processes are gathered
    join_shards(model)
    return state


def launch(precision: str = "32-true", *, sparse: bool = True) -> Fabric:
    """A Fabric for this process, which may be one of several that torchrun has started.

    sparse   whether gradients are sparse: nccl cannot sum these, so GPUs then use gloo as well
    """
    world, local = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    # The buffers of heads are drawn from the seed and are the same everywhere: no step need send them.
    several = DDPStrategy(process_group_backend="gloo" if sparse else None, forward_sync_buffers=False)
    fabric = Fabric(
        accelerator="cuda" if torch.cuda.is_available() else "cpu",
        strategy=several if world > 1 else "auto",
        devices=local,
        num_nodes=world // local,
        precision=precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    leave_at_exit()
    return fabric


def validation_split(n: int, fraction: float, seed: int, groups: IntArray | None = None) -> tuple[RowIndex, RowIndex]:
    """Rows to train on and rows held out for validation, both ascending; with groups, whole groups are held out."""
    return holdout(n, min(MAX_HELD_OUT_ROWS, int(n * fraction)), [seed, 1], groups)


class _Run:
    checkpoint: Path | None = None
    log: Path | None = None
    checkpoint_seconds = CHECKPOINT_SECONDS
    warm_start = False
    constant_rate = False
    options: dict[str, Any] = {}  # noqa: RUF012 set by `fit`

    def __init__(
        self,
        model: Model,
        examples: Examples,
        Y: CsrArray,
        config: TrainConfig,
        fabric: Fabric,
        on_progress: TrainCallback | None,
        groups: IntArray | None = None,
    ) -> None:
        self.model, self.examples, self.Y, self.config, self.fabric = model, examples, Y, config, fabric
        self.is_main = fabric.global_rank == 0
        self.on_progress = on_progress if self.is_main and on_progress else lambda state, config: None
        self.groups = groups
        self.kept, self.held_out = validation_split(len(examples), config.validation_fraction, config.seed, groups)
        assert config.epochs is not None and config.batch_size is not None and config.metric is not None
        self.epochs, self.batch_size, self.metric = config.epochs, config.batch_size, config.metric
        self.state = TrainState(steps=-(-len(self.kept) // self.batch_size))
        self.best: dict[str, Tensor] | None = None
        self.optimisers = optimisers(model, config)
        # DistributedDataParallel leaves alone what is not the same in all processes.
        self.sharded = sharded_layers(model)
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, list(self.sharded))
        # Fabric's optimisers delegate to these, so a state restored into these is used.
        self.wrapped, *self.steppers = _setup(fabric, model, self.optimisers)

    def run(self) -> None:
        state = self.state
        self.began = time.monotonic() - state.seconds
        written = state.seconds  # by the clock of the first process: all write together
        self.write_log(0)
        self.model.train()
        devices = [self.fabric.device] if self.fabric.device.type == "cuda" else []
        with _stop_signals() as signals, torch.random.fork_rng(devices):
            if self.warm_start and len(self.held_out) and not state.history and not state.step:
                self.keep_best(self.validate())
                state.best_epoch = -1  # before the first
            while not state.finished:
                n_rows, since = 0, time.monotonic()
                for rows in self.batches():
                    loss = self.step(rows) / self.fabric.world_size
                    stop, loss, state.seconds = self.all_reduce(bool(signals), loss, self.clock())
                    self.add_loss(loss)
                    n_rows += len(rows)
                    state.rows_per_second = n_rows / max(1e-9, time.monotonic() - since)
                    self.on_progress(state, self.config)
                    if stop:
                        self.write()
                        raise TrainingInterrupted
                    if self.out_of_time():
                        break
                    if state.seconds - written > self.checkpoint_seconds and state.step < state.steps:
                        self.write()
                        written = state.seconds
                self.end_epoch()
                self.write()
                self.write_log(state.epoch - 1)
                written = state.seconds
        if self.best is not None:
            self.model.load_state_dict(self.best)
        self.model.eval()

    def batches(self) -> Iterator[RowIndex]:
        """The batches left of this epoch; texts of similar length share one."""
        seed, epoch, step, size = self.config.seed, self.state.epoch, self.state.step, self.batch_size
        order = np.random.default_rng([seed, 2, epoch]).permutation(self.kept)
        if self.examples.sizes is not None:
            yield from islice(length_buckets(self.examples.sizes, order, size, [seed, 4, epoch]), step, None)
            return
        for first in range(step * size, len(order), size):
            yield order[first : first + size]

    def step(self, batch: RowIndex) -> float:
        """One step of all processes. Returns the loss of this one's rows; the mean over processes is the batch's."""
        fabric, rank, world = self.fabric, self.fabric.global_rank, self.fabric.world_size
        factor = self.rate_factor()
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = factor * optimiser.defaults["lr"]
        chance = np.random.SeedSequence([self.config.seed, 3, self.state.epoch, self.state.step, rank])
        _seed(int(chance.generate_state(1, np.uint64)[0]), fabric.device)
        rows = batch[rank::world]
        # A process without rows of a last batch takes one row with weight 0: every parameter must have a gradient.
        mine = rows if len(rows) else batch[:1]
        inputs, (labels, offsets) = self.examples.batch(mine), ragged_labels(self.Y, mine)
        loss = self.wrapped(inputs.to(fabric.device), labels.to(fabric.device), offsets.to(fabric.device))
        loss = loss * (len(rows) * world / len(batch))
        fabric.backward(loss)
        if self.config.clip_norm:
            sharded = {id(layer.weight) for layer in self.sharded.values()}
            clip_gradients(self.model.parameters(), self.config.clip_norm, sharded, self.all_reduce)
        for stepper in self.steppers:
            stepper.step()
            stepper.zero_grad()
        return float(loss.detach())

    def rate_factor(self) -> float:
        """The learning rate as a fraction of its peak, at the middle of the step: no step has rate 0."""
        if self.constant_rate:
            return 1.0
        state, limit = self.state, self.config.time_limit
        done = (state.epoch + (state.step + 0.5) / state.steps) / self.epochs
        if limit is not None:
            done = max(done, state.seconds / max(1e-9, limit - state.validation_seconds))
        return self.config.schedule(done)

    def add_loss(self, loss: float) -> None:
        state = self.state
        state.step += 1
        state.total_loss += loss
        state.loss = state.total_loss / state.step
        if not math.isfinite(loss):
            raise OptionError(
                f"train: the loss is {loss} at step {state.step} of epoch {state.epoch + 1}; take a learning_rate "
                f"below {self.config.learning_rate:g}, and see that the features are finite"
            )

    def end_epoch(self) -> None:
        state, config = self.state, self.config
        metric = self.validate()
        before, (state.seconds,) = state.seconds, self.all_reduce(self.clock())
        state.validation_seconds = state.seconds - before
        state.history.append(
            {
                "epoch": state.epoch + 1,
                "loss": state.loss,
                **({self.metric: metric} if len(self.held_out) else {}),
            }
        )
        state.timings.append(
            {"seconds": round(state.seconds, 3), "rows per second": round(state.rows_per_second, 1)},
        )
        if metric > state.best:
            self.keep_best(metric)
        stops_early = bool(len(self.held_out)) and 0 < config.patience <= state.epoch - state.best_epoch
        state.epoch, state.step, state.total_loss = state.epoch + 1, 0, 0.0
        state.finished = state.epoch >= self.epochs or stops_early or self.out_of_time()
        self.on_progress(state, config)

    def keep_best(self, metric: float) -> None:
        self.state.best, self.state.best_epoch = metric, self.state.epoch
        self.best = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def validate(self) -> float:
        """The validation metric on the held-out rows; without any, minus the training loss."""
        if not len(self.held_out):
            return -self.state.loss
        name, _, at = self.metric.partition("@")
        k = min(int(at), self.model.n_labels)
        mine = self.held_out[self.fabric.global_rank :: self.fabric.world_size]
        total = 0.0
        self.model.eval()
        batches = list(prediction_batches(self.examples, mine, MAX_BATCH_ROWS))
        n_extra = 0
        if self.sharded:  # all processes call the network together: those with fewer batches compute some in vain
            n_batches = max(1, -(-len(self.held_out) // (self.fabric.world_size * MAX_BATCH_ROWS)))
            n_extra = n_batches - len(batches)
        for i, rows in enumerate(batches + n_extra * [self.held_out[:1]]):
            with torch.inference_mode():
                h = self.model.network(self.examples.batch(rows).to(self.fabric.device))
            if i >= len(batches):
                continue
            top = self.model.top_k_of_output(h, k)[1].cpu().numpy()
            total += float(METRIC_FUNCTIONS[name](take_rows(self.Y, rows), top)[-1]) * len(rows)
        self.model.train()
        return self.all_reduce(total)[0] / len(self.held_out)

    def out_of_time(self) -> bool:
        """Whether there is only time left to validate."""
        limit = self.config.time_limit
        return limit is not None and self.state.seconds + self.state.validation_seconds >= limit

    def clock(self) -> float:
        """Seconds of this run on the main process, 0 on others: `all_reduce` gives all of them the main one's."""
        return time.monotonic() - self.began if self.is_main else 0.0

    def all_reduce(self, *values: float) -> tuple[float, ...]:
        """Each value, summed over all processes."""
        if self.fabric.world_size == 1:
            return values
        mine = torch.tensor(values, dtype=torch.float64, device=self.fabric.device)
        torch.distributed.all_reduce(mine)
        return tuple(mine.tolist())

    # Checkpoints

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed; the time limit may change, and where weights are."""
        order = self.model.label_order
        found = {
            "config": asdict(replace(self.config, time_limit=None, shard_features=False)),
            "options": self.options,
            "warm_start": self.warm_start,
            "network": self.model.network.config(),
            "head": repr(self.model.head),
            "label_order": None if order is None else checkpoints.checksum(order),
            "examples": checkpoints.examples_fingerprint(self.examples),
            "labels": checkpoints.csr_fingerprint(self.Y.shape, self.Y.indptr, self.Y.indices),
        }
        if self.groups is not None:
            found["groups"] = checkpoints.checksum(self.groups)
        return json.loads(json.dumps(found, default=str))  # JSON has no tuples

    def write(self) -> None:
        if self.checkpoint is not None and (self.is_main or self.sharded):
            kept = asdict(self.state), self.model, self.best, self.optimisers
            checkpoints.write(self.checkpoint, self.fingerprint, *kept, is_main=self.is_main)

    def write_log(self, first: int) -> None:
        """Add the lines of the epochs from `first` to the log, but none that it has already.

        A checkpoint is written before the line of its epoch, so after a kill the log may lack a line of the run, and
        has none too many.
        """
        if self.log is not None:
            entries = zip(self.state.history[first:], self.state.timings[first:], strict=True)
            add_lines(self.log, [_json_line(entry | times) for entry, times in entries])

    def restore(self, checkpoint: Path) -> None:
        (n_found,) = self.all_reduce(checkpoint.exists())
        if not n_found:
            return
        if n_found < self.fabric.world_size:
            raise FileError(
                f"{checkpoint} is seen by {int(n_found)} of {self.fabric.world_size} processes; put it on a file "
                "system that all machines share"
            )
        stored, self.best = checkpoints.read(checkpoint, self.fingerprint, self.model, self.optimisers)
        with suppress(TypeError):
            state = TrainState(**stored)
            if state.is_possible(self.config, self.state.steps):
                self.state = state
                return
        raise FileError(f"{checkpoint} is damaged (no such run can be in this state); remove it to start anew")


def _setup(fabric: Fabric, model: nn.Module, found: list[Optimizer]) -> Any:
    return fabric.setup(model, *found)


def clip_gradients(
    parameters: Iterator[nn.Parameter],
    max_norm: float,
    sharded: Container[int] = (),
    all_reduce: Callable[..., tuple[float, ...]] = lambda *values: values,
) -> None:
    """Scale all gradients so that their joint norm is at most `max_norm`; torch's own clipping takes no sparse ones.

    sharded      ids of parameters of which every process has other rows
    all_reduce   gives the sum over all processes
    """
    values, divided = [], []
    for p in parameters:
        if p.grad is not None and p.grad.is_sparse:
            p.grad = p.grad.coalesce()
        if p.grad is not None:
            values.append(p.grad._values() if p.grad.is_sparse else p.grad)
            divided.append(id(p) in sharded)
    if not values:
        return
    norms = torch.stack(torch._foreach_norm(values))
    if any(divided):
        own = norms[torch.tensor(divided)]
        (of_all,) = all_reduce(float(own.double().square().sum()))
        norms = torch.cat([norms[~torch.tensor(divided)], own.new_tensor([of_all]).sqrt()])
    norm = norms.norm()
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(values, scale)


def _seed(seed: int, device: torch.device) -> None:
    """Seed the dropout of a step; `torch.manual_seed` keeps a stack trace of every call for devices never used."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def _json_line(entry: dict[str, float]) -> str:
    """A line of JSON; NaN, which JSON does not have, becomes null."""
    return json.dumps({name: value if math.isfinite(value) else None for name, value in entry.items()}) + "\n"


@contextmanager
def _stop_signals() -> Iterator[list[float]]:
    """The times at which Ctrl-C or SIGTERM came, to be checked after each step. A later second one ends at once.

    Later, because `timeout` and torchrun send the same signal to a process and to its group: twice in a moment.
    """
    times: list[float] = []

    def handle(number: int, frame: Any) -> None:
        if times and time.monotonic() - times[0] > REPEATED_SIGNAL_SECONDS:
            raise KeyboardInterrupt
        times.append(time.monotonic())

    try:
        before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals belong to someone else
        yield times
        return
    try:
        yield times
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
