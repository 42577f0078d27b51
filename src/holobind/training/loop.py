"""The one training loop, for any network and head, on one process or many (Lightning Fabric).

Every random choice follows from (seed, epoch, step, process): the split, the order of an epoch, what dropout leaves
out. A run that was stopped and resumed from its checkpoint is therefore the run that was not.

Several processes (torchrun) share every batch: each reads its rows of it, DistributedDataParallel sums the gradients,
and all take the same step. What they must agree on at each step, the loss, the clock and whether to stop, is one more
sum of three numbers.
"""

import json
import math
import os
import signal
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from holobind._types import RowIndex
from holobind.data.batches import Examples, bucketed, portions, ragged_labels
from holobind.data.csr import label_rows
from holobind.errors import FileError, OptionError, Stopped
from holobind.model import BATCH, Model
from holobind.training import checkpoint as stored
from holobind.training.config import MEASURES, TrainConfig, TrainState
from holobind.training.optimiser import RowAdam

__all__ = ["TrainConfig", "TrainState", "Stopped", "clip", "fit", "launch", "optimisers", "split"]

AGAIN = 1.0  # seconds after which a second signal is meant as one


def fit(
    model: Model,
    examples: Examples,
    Y: Any,
    plan: TrainConfig | None = None,
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    log: Path | None = None,
    on_progress: Callable[[TrainState, TrainConfig], None] | None = None,
    every: float = 600.0,
    warm: bool = False,
    fabric: Fabric | None = None,
) -> TrainState:
    """Train `model` in place; it ends with the weights of its best epoch.

    checkpoint   a file to continue from, written after each epoch, every `every` seconds and when told to stop
    resume       continue from it, if it is there; the result is that of a run without interruption, to the bit (but
                 not with a time limit, which makes the learning rate depend on the clock)
    log          a file that gets a line of JSON for each epoch of this run
    warm         the model has learned before: if no epoch is better than its start, it ends as it began

    Under torchrun all processes call it with the same arguments; the checkpoint is on a file system that they share.
    """
    plan = plan or TrainConfig()
    if len(examples) != Y.shape[0] or len(examples) < 1:
        raise OptionError(f"train: wants as many inputs as rows of labels; got {len(examples)} and {Y.shape[0]}")
    fabric = fabric or launch(plan.precision, sparse=bool(_by_row(model)))
    run = _Run(model, examples, Y, plan, fabric, checkpoint, log, on_progress, every, warm)
    if resume and checkpoint is not None:
        run.restore()
    run.go()
    return run.at


def launch(precision: str = "32-true", *, sparse: bool = True) -> Fabric:
    """A Fabric for this process, or for this one of several that torchrun has started.

    sparse   whether gradients are: nccl cannot sum those, so that GPUs then talk by gloo, too
    """
    world, local = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    # The buffers of heads are drawn from the seed and the same everywhere, so no step need send them.
    several = DDPStrategy(process_group_backend="gloo" if sparse else None, forward_sync_buffers=False)
    fabric = Fabric(
        accelerator="cuda" if torch.cuda.is_available() else "cpu",
        strategy=several if world > 1 else "auto",
        devices=local,
        num_nodes=world // local,
        precision=precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    return fabric


def split(n: int, share: float, seed: int) -> tuple[RowIndex, RowIndex]:
    """Rows to train on and rows to measure on, both ascending."""
    order = np.random.default_rng([seed, 1]).permutation(n)
    held = min(2000, int(n * share))
    return np.sort(order[held:]), np.sort(order[:held])


class _Run:
    def __init__(
        self,
        model: Model,
        examples: Examples,
        Y: Any,
        plan: TrainConfig,
        fabric: Fabric,
        checkpoint: Path | None,
        log: Path | None,
        on_progress: Callable[[TrainState, TrainConfig], None] | None,
        every: float,
        warm: bool,
    ) -> None:
        self.model, self.examples, self.Y, self.plan, self.fabric = model, examples, Y, plan, fabric
        self.first, self.warm = fabric.global_rank == 0, warm
        self.checkpoint, self.log, self.every = checkpoint, log if self.first else None, every
        self.tell = on_progress if self.first and on_progress else lambda at, plan: None
        self.kept, self.held = split(len(examples), plan.validation, plan.seed)
        self.at = TrainState(steps=-(-len(self.kept) // plan.batch_size))
        self.best: dict[str, Tensor] | None = None
        self.optimisers = optimisers(model, plan)
        # Fabric's optimisers delegate to these, so a state restored into these is the one that is used.
        self.wrapped, *self.steppers = _setup(fabric, model, self.optimisers)

    def go(self) -> None:
        at = self.at
        self.began = time.monotonic() - at.seconds
        written = time.monotonic()
        if self.checkpoint is not None and self.first:
            stored.tidy(self.checkpoint)
        if self.log is not None:  # what it has of later epochs than the checkpoint will be trained again
            self.log.write_text("".join(map(_line, at.history)), encoding="utf-8")
        self.model.train()
        devices = [self.fabric.device] if self.fabric.device.type == "cuda" else []
        with _signals() as told, torch.random.fork_rng(devices):
            if self.warm and len(self.held) and not at.history and not at.step:
                self.keep(self.measure())
                at.best_epoch = -1  # before the first
            while not at.finished:
                rows, since = 0, time.monotonic()
                for index in self.batches():
                    loss = self.step(index)
                    stop, loss, at.seconds = self.summed(bool(told), loss / self.fabric.world_size, self.clock())
                    self.count(loss)
                    rows += len(index)
                    at.rows_a_second = rows / max(1e-9, time.monotonic() - since)
                    self.tell(at, self.plan)
                    if stop:
                        self.write()
                        raise Stopped
                    if self.late():
                        break
                    if time.monotonic() - written > self.every and at.step < at.steps:
                        self.write()
                        written = time.monotonic()
                self.end_of_epoch()
                self.write()
                written = time.monotonic()
        if self.best is not None:
            self.model.load_state_dict(self.best)
        self.model.eval()

    def batches(self) -> Iterator[RowIndex]:
        """What is left of this epoch; texts of like length together."""
        order = np.random.default_rng([self.plan.seed, 2, self.at.epoch]).permutation(self.kept)
        size, sizes = self.plan.batch_size, self.examples.sizes
        if sizes is not None:
            yield from islice(bucketed(sizes, order, size, [self.plan.seed, 4, self.at.epoch]), self.at.step, None)
            return
        for first in range(self.at.step * size, len(order), size):
            yield order[first : first + size]

    def step(self, index: RowIndex) -> float:
        """One step of all processes; the loss of this one's rows, as a part of the mean over processes."""
        fabric, rank, world = self.fabric, self.fabric.global_rank, self.fabric.world_size
        pace = self.pace()
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = pace * optimiser.defaults["lr"]
        chance = np.random.SeedSequence([self.plan.seed, 3, self.at.epoch, self.at.step, rank])
        _seed(int(chance.generate_state(1, np.uint64)[0]), fabric.device)
        rows = index[rank::world]
        # A process without rows of a last batch takes one for nothing: every parameter must have its gradient.
        mine = rows if len(rows) else index[:1]
        inputs, (labels, offsets) = self.examples.batch(mine), ragged_labels(self.Y, mine)
        loss = self.wrapped(inputs.to(fabric.device), labels.to(fabric.device), offsets.to(fabric.device))
        # The mean over processes of these is the mean over the rows of the whole batch.
        loss = loss * (len(rows) * world / len(index))
        fabric.backward(loss)
        if self.plan.clip:
            clip(self.model.parameters(), self.plan.clip)
        for stepper in self.steppers:
            stepper.step()
            stepper.zero_grad()
        return float(loss.detach())

    def pace(self) -> float:
        at, plan = self.at, self.plan
        done = (at.epoch + (at.step + 0.5) / at.steps) / plan.epochs  # the middle of the step: no step has rate 0
        if plan.time_limit is not None:
            done = max(done, at.seconds / max(1e-9, plan.time_limit - at.measuring))
        return plan.pace(done)

    def count(self, loss: float) -> None:
        at = self.at
        at.step += 1
        at.total += loss
        at.loss = at.total / at.step
        if not math.isfinite(loss):
            raise OptionError(
                f"train: the loss is {loss} at step {at.step} of epoch {at.epoch + 1}; take a learning_rate below "
                f"{self.plan.learning_rate:g}, and see that the features are finite"
            )

    def end_of_epoch(self) -> None:
        at, plan = self.at, self.plan
        measured = self.measure()
        before, (at.seconds,) = at.seconds, self.summed(self.clock())
        at.measuring = at.seconds - before
        at.history.append(
            {
                "epoch": at.epoch + 1,
                "loss": at.loss,
                **({plan.measure: measured} if len(self.held) else {}),
                "seconds": round(at.seconds, 3),
                "rows a second": round(at.rows_a_second, 1),
            }
        )
        if self.log is not None:
            with self.log.open("a", encoding="utf-8") as file:
                file.write(_line(at.history[-1]))
        if measured > at.best:
            self.keep(measured)
        impatient = bool(len(self.held)) and 0 < plan.patience <= at.epoch - at.best_epoch
        at.epoch, at.step, at.total = at.epoch + 1, 0, 0.0
        at.finished = at.epoch >= plan.epochs or impatient or self.late()
        self.tell(at, plan)

    def keep(self, measured: float) -> None:
        self.at.best, self.at.best_epoch = measured, self.at.epoch
        self.best = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def measure(self) -> float:
        """The plan's measure on the rows held out; without any, minus the training loss."""
        if not len(self.held):
            return -self.at.loss
        name, _, at = self.plan.measure.partition("@")
        k = min(int(at), self.model.n_labels)
        mine = self.held[self.fabric.global_rank :: self.fabric.world_size]
        total = 0.0
        self.model.eval()
        for index in portions(self.examples, mine, BATCH):
            with torch.inference_mode():
                h = self.model.network(self.examples.batch(index).to(self.fabric.device))
            top = self.model.best(h, k)[1].cpu().numpy()
            total += float(MEASURES[name](label_rows(self.Y, index), top)[-1]) * len(index)
        self.model.train()
        return self.summed(total)[0] / len(self.held)

    def late(self) -> bool:
        """Whether there is time for no more than to measure."""
        return self.plan.time_limit is not None and self.at.seconds + self.at.measuring >= self.plan.time_limit

    def clock(self) -> float:
        """Seconds of this run, by the first process's clock once `summed`."""
        return time.monotonic() - self.began if self.first else 0.0

    def summed(self, *values: float) -> tuple[float, ...]:
        """Each value, summed over all processes: what all of them then know alike."""
        if self.fabric.world_size == 1:
            return values
        mine = torch.tensor(values, dtype=torch.float64, device=self.fabric.device)
        torch.distributed.all_reduce(mine)
        return tuple(mine.tolist())

    # Checkpoints

    def fingerprint(self) -> dict[str, Any]:
        """What must be the same for a run to be continued; a longer time is no other run."""
        sample = np.ascontiguousarray(self.Y.indices[:: self.Y.nnz // 100_000 + 1])
        sizes, order = self.examples.sizes, self.model.label_order
        return {
            "plan": asdict(replace(self.plan, time_limit=None)),
            "network": self.model.network.config(),
            "head": repr(self.model.head),
            "label_order": None if order is None else zlib.crc32(order.data),
            "rows": len(self.examples),
            "sizes": None if sizes is None else zlib.crc32(np.ascontiguousarray(sizes).data),
            "labels": int(self.Y.shape[1]),
            "entries": int(self.Y.nnz),
            "sample": zlib.crc32(sample.astype(np.int64).data),
        }

    def write(self) -> None:
        if self.checkpoint is not None and self.first:
            stored.write(self.checkpoint, self.fingerprint(), asdict(self.at), self.model, self.best, self.optimisers)

    def restore(self) -> None:
        assert self.checkpoint is not None
        (seen,) = self.summed(self.checkpoint.exists())
        if not seen:
            return
        if seen < self.fabric.world_size:
            raise FileError(
                f"{self.checkpoint} is seen by {int(seen)} of {self.fabric.world_size} processes; put it on a file "
                "system that all machines share"
            )
        run = json.loads(json.dumps(self.fingerprint()))  # JSON has no tuples
        progress, self.best = stored.read(self.checkpoint, run, self.model, self.optimisers)
        with suppress(TypeError):
            at = TrainState(**progress)
            if at.possible(self.plan, self.at.steps):
                self.at = at
                return
        raise FileError(f"{self.checkpoint} is damaged (it is where no such run can be); remove it to start anew")


def optimisers(model: nn.Module, plan: TrainConfig) -> list[Optimizer]:
    """Adam, by rows for layers with sparse gradients. Weight decay is for matrices, and not for those."""
    by_row = _by_row(model)
    learned = [p for p in model.parameters() if p.requires_grad]
    rows = [p for p in learned if id(p) in by_row]
    dense = [p for p in learned if id(p) not in by_row]
    groups = [
        {"params": [p for p in dense if p.ndim > 1], "weight_decay": plan.weight_decay},
        {"params": [p for p in dense if p.ndim <= 1], "weight_decay": 0.0},
    ]
    found: list[Optimizer] = []
    if dense:
        found.append(AdamW([g for g in groups if g["params"]], lr=plan.learning_rate, fused=True))
    if rows:
        found.append(
            RowAdam(rows, lr=plan.learning_rate if plan.feature_learning_rate is None else plan.feature_learning_rate)
        )
    return found


def _by_row(model: nn.Module) -> set[int]:
    return {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.sparse}


def _setup(fabric: Fabric, model: nn.Module, found: list[Optimizer]) -> Any:
    return fabric.setup(model, *found)


def clip(parameters: Iterator[nn.Parameter], longest: float) -> None:
    """Scale all gradients so that together they are no longer than `longest`; torch's own does not take sparse ones."""
    values = []
    for p in parameters:
        if p.grad is not None and p.grad.is_sparse:
            p.grad = p.grad.coalesce()
            values.append(p.grad._values())
        elif p.grad is not None:
            values.append(p.grad)
    if not values:
        return
    length = torch.stack(torch._foreach_norm(values)).norm()
    scale = (longest / (length + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(values, scale)


def _seed(seed: int, device: torch.device) -> None:
    """Where a step's dropout starts; `torch.manual_seed` remembers a stack trace a call for devices never used."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def _line(entry: dict[str, float]) -> str:
    """A line of JSON, which has no NaN."""
    return json.dumps({name: value if math.isfinite(value) else None for name, value in entry.items()}) + "\n"


@contextmanager
def _signals() -> Iterator[list[float]]:
    """When signals to stop came, Ctrl-C or SIGTERM: to be looked at after each step. A later second one ends at once.

    Later, because `timeout` and torchrun send the same signal to a process and to its group: twice in a moment.
    """
    told: list[float] = []

    def handle(number: int, frame: Any) -> None:
        if told and time.monotonic() - told[0] > AGAIN:
            raise KeyboardInterrupt
        told.append(time.monotonic())

    try:
        before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are someone else's
        yield told
        return
    try:
        yield told
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
