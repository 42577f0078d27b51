"""The one training loop, for any network and head, on one process or many (Lightning Fabric).

Every random choice follows from (seed, epoch, step): the split, the order of an epoch, what dropout leaves out. A run
that was stopped and resumed from its checkpoint is therefore the run that was not.
"""

import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn

from holobind import container, metrics
from holobind.errors import FileError, OptionError, Stopped
from holobind.model import Model
from holobind.networks.inputs import Examples, Index, label_sets
from holobind.optimiser import RowAdam

MEASURES: dict[str, Callable[[Any, NDArray[np.int64]], NDArray[np.float64]]] = {
    "P": metrics.precision_at_k,
    "nDCG": metrics.ndcg_at_k,
    "R": metrics.recall_at_k,
}


@dataclass(frozen=True)
class Plan:
    """How to train.

    batch_size      rows of a step, over all processes together
    learning_rate   its peak: it rises over the first `warm_up` share of the steps, then falls to 0 like a cosine
    clip            the longest gradient; 0: any
    patience        epochs without a better validation measure after which to stop; 0: never
    validation      share of the training rows held out to measure on (2,000 at most)
    measure         which of P@k, nDCG@k, R@k decides the best epoch
    precision       Fabric's: "32-true", "bf16-mixed", ...
    time_limit      seconds after which to have finished, the learning rate fallen to 0; None: no limit
    """

    epochs: int = 10
    batch_size: int = 256
    learning_rate: float = 1e-3
    warm_up: float = 0.05
    weight_decay: float = 0.0
    clip: float = 1.0
    patience: int = 3
    validation: float = 0.1
    measure: str = "P@1"
    precision: str = "32-true"
    time_limit: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise OptionError(f"train: {name} must be 1 or more; got {getattr(self, name)}")
        for name in ("learning_rate", "weight_decay", "clip", "patience"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise OptionError(f"train: {name} must be a number and not negative; got {value}")
        for name in ("warm_up", "validation"):
            if not 0 <= getattr(self, name) < 1:
                raise OptionError(f"train: {name} is a share from 0 to below 1; got {getattr(self, name)}")
        if self.time_limit is not None and not self.time_limit > 0:
            raise OptionError(f"train: time_limit must be positive; got {self.time_limit}")
        name, _, k = self.measure.partition("@")
        if name not in MEASURES or not k.isdecimal() or int(k) < 1:
            raise OptionError(f"train: measure must be one of {', '.join(MEASURES)} @k; got {self.measure!r}")

    def rate(self, done: float) -> float:
        """The learning rate when a share of the run is done."""
        if done < self.warm_up:
            return self.learning_rate * done / self.warm_up
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, (done - self.warm_up) / (1 - self.warm_up))))


@dataclass
class Progress:
    """Where a run is. `history` has one entry for each epoch: loss, measure, seconds."""

    epoch: int = 0
    step: int = 0  # of this epoch
    steps: int = 0  # of every epoch
    loss: float = math.nan  # mean over this epoch so far
    total: float = 0.0
    best: float = -math.inf
    best_epoch: int = -1
    seconds: float = 0.0
    rows_a_second: float = math.nan
    finished: bool = False
    history: list[dict[str, float]] = field(default_factory=list)


def fit(
    model: Model,
    examples: Examples,
    Y: Any,
    plan: Plan | None = None,
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    log: Path | None = None,
    on_progress: Callable[[Progress, Plan], None] | None = None,
    every: float = 600.0,
    fabric: Fabric | None = None,
) -> Progress:
    """Train `model` in place; it ends with the weights of its best epoch.

    checkpoint   a file to continue from, written after each epoch, every `every` seconds and when told to stop
    resume       continue from it, if it is there
    log          a file that gets a line of JSON for each epoch
    """
    plan = plan or Plan()
    if len(examples) != Y.shape[0] or len(examples) < 1:
        raise OptionError(f"train: wants as many inputs as rows of labels; got {len(examples)} and {Y.shape[0]}")
    fabric = fabric or launch(plan.precision)
    run = _Run(model, examples, Y, plan, fabric, checkpoint, log, on_progress, every)
    if resume and checkpoint is not None and checkpoint.exists():
        run.restore()
    run.go()
    return run.at


def launch(precision: str = "32-true") -> Fabric:
    """A Fabric for this process, or for this one of several that torchrun has started."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    gpu = torch.cuda.is_available()
    fabric = Fabric(
        accelerator="cuda" if gpu else "cpu",
        strategy="ddp" if several else "auto",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("WORLD_SIZE", "1")) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        precision=precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    return fabric


def split(n: int, share: float, seed: int) -> tuple[Index, Index]:
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
        plan: Plan,
        fabric: Fabric,
        checkpoint: Path | None,
        log: Path | None,
        on_progress: Callable[[Progress, Plan], None] | None,
        every: float,
    ) -> None:
        self.model, self.examples, self.Y, self.plan, self.fabric = model, examples, Y, plan, fabric
        self.checkpoint, self.log, self.every = checkpoint, log, every
        self.tell = on_progress if fabric.global_rank == 0 else None
        self.kept, self.held = split(len(examples), plan.validation, plan.seed)
        self.at = Progress(steps=-(-len(self.kept) // plan.batch_size))
        self.best: dict[str, Tensor] | None = None
        self.optimisers = _optimisers(model, plan)
        self.wrapped, *optimisers = _setup(fabric, model, self.optimisers)
        self.steppers = optimisers
        self.told = False

    def go(self) -> None:
        at, plan = self.at, self.plan
        self.model.train()
        began = time.monotonic() - at.seconds
        written = time.monotonic()
        with _stopping(self) as self._signals:
            while not at.finished:
                rows, since = 0, time.monotonic()
                for index in self.batches():
                    self.step(index)
                    at.seconds = time.monotonic() - began
                    rows += len(index)
                    at.rows_a_second = rows / max(1e-9, time.monotonic() - since)
                    if self.tell:
                        self.tell(at, plan)
                    if self.agreed(self.told):
                        self.write()
                        raise Stopped
                    if time.monotonic() - written > self.every and at.step < at.steps:
                        self.write()
                        written = time.monotonic()
                    if self.late():
                        break
                self.end_of_epoch()
                at.seconds = time.monotonic() - began
                self.write()
                written = time.monotonic()
        if self.best is not None:
            self.model.load_state_dict(self.best)
        self.model.eval()

    def batches(self) -> Iterator[Index]:
        """What is left of this epoch."""
        order = np.random.default_rng([self.plan.seed, 2, self.at.epoch]).permutation(self.kept)
        size = self.plan.batch_size
        for first in range(self.at.step * size, len(order), size):
            yield order[first : first + size]

    def step(self, index: Index) -> None:
        at, plan, fabric = self.at, self.plan, self.fabric
        done = (at.epoch + (at.step + 1) / at.steps) / plan.epochs
        if plan.time_limit is not None:
            done = max(done, at.seconds / plan.time_limit)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = plan.rate(done)
        torch.manual_seed(hash((plan.seed, at.epoch, at.step, fabric.global_rank)) % 2**63)
        mine = index[fabric.global_rank :: fabric.world_size]
        inputs, (labels, offsets) = self.examples.batch(mine), label_sets(self.Y, mine)
        loss = self.wrapped(inputs.to(fabric.device), labels.to(fabric.device), offsets.to(fabric.device))
        # The mean over processes of these is the mean over the rows of the whole batch.
        loss = loss * (len(mine) * fabric.world_size / len(index))
        fabric.backward(loss)
        if plan.clip:
            _clip(self.model.parameters(), plan.clip)
        for stepper in self.steppers:
            stepper.step()
            stepper.zero_grad()
        at.step += 1
        at.total += float(loss.detach())
        at.loss = at.total / at.step

    def end_of_epoch(self) -> None:
        at, plan = self.at, self.plan
        measured = self.measure()
        if self.fabric.world_size > 1:
            at.loss = float(self.fabric.all_reduce(torch.tensor(at.loss), reduce_op="mean"))  # type: ignore[arg-type]
        at.history.append(
            {"epoch": at.epoch + 1, "loss": at.loss, plan.measure: measured, "seconds": round(at.seconds, 3)}
        )
        if self.log is not None and self.fabric.global_rank == 0:
            with self.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**at.history[-1], "rows a second": round(at.rows_a_second, 1)}) + "\n")
        if not measured <= at.best:
            at.best, at.best_epoch = measured, at.epoch
            self.best = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        waited = at.epoch - at.best_epoch
        late = self.agreed(self.late())
        at.epoch, at.step, at.total = at.epoch + 1, 0, 0.0
        impatient = bool(len(self.held)) and 0 < plan.patience <= waited
        at.finished = at.epoch >= plan.epochs or impatient or late
        if self.tell:
            self.tell(at, plan)

    def measure(self) -> float:
        """The plan's measure on the rows held out; without any, minus the training loss."""
        if not len(self.held):
            return -self.at.loss
        name, _, at = self.plan.measure.partition("@")
        k = min(int(at), self.model.n_labels)
        mine = self.held[self.fabric.global_rank :: self.fabric.world_size]
        total = 0.0
        self.model.eval()
        for first in range(0, len(mine), 1024):
            index = mine[first : first + 1024]
            with torch.inference_mode():
                h = self.model.network(self.examples.batch(index).to(self.fabric.device))
                top = self.model.head.top_k(h, k)[1].cpu().numpy()
            total += float(MEASURES[name](self.Y[index], top)[-1]) * len(index)
        self.model.train()
        if self.fabric.world_size > 1:
            total = float(self.fabric.all_reduce(torch.tensor(total, dtype=torch.float64), reduce_op="sum"))  # type: ignore[arg-type]
        return total / len(self.held)

    def late(self) -> bool:
        return self.plan.time_limit is not None and self.at.seconds >= self.plan.time_limit

    def agreed(self, wanted: bool) -> bool:
        """Whether any process wants it: all must stop at the same step."""
        if self.fabric.world_size == 1:
            return wanted
        return bool(self.fabric.all_reduce(torch.tensor(float(wanted)), reduce_op="sum") > 0)  # type: ignore[operator]

    # Checkpoints

    def fingerprint(self) -> dict[str, Any]:
        """What must be the same for a run to be continued; a longer time is no other run."""
        plan = asdict(replace(self.plan, time_limit=None))
        return {"plan": plan, "rows": len(self.examples), "labels": int(self.Y.shape[1]), "entries": int(self.Y.nnz)}

    def write(self) -> None:
        if self.checkpoint is None or self.fabric.global_rank != 0:
            return
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        if self.best is not None:
            tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for name, state in self.states():
            tensors |= {f"optimiser.{name}.{key}": torch.as_tensor(value) for key, value in state.items()}
        tensors = {name: tensor.cpu().clone() for name, tensor in tensors.items()}
        header = {"progress": asdict(self.at), "run": self.fingerprint()}
        container.write(self.checkpoint, "checkpoint", 1, header, tensors)

    def restore(self) -> None:
        assert self.checkpoint is not None
        header, tensors = container.read(self.checkpoint, "checkpoint", 1)
        if header.get("run") != self.fingerprint():
            raise FileError(
                f"{self.checkpoint} is of a run with other data or options; repeat those, or remove it to start anew"
            )
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "optimiser": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition(".")
            parts.setdefault(part, {})[rest] = tensor
        try:
            self.model.load_state_dict(parts["model"])
            self.best = parts["best"] or None
            saved: dict[str, dict[str, Tensor]] = {}
            for name, tensor in parts["optimiser"].items():
                owner, _, key = name.rpartition(".")
                saved.setdefault(owner, {})[key] = tensor
            for name, parameter in self.model.named_parameters():
                for optimiser in self.optimisers:
                    if name in saved and any(parameter is p for g in optimiser.param_groups for p in g["params"]):
                        optimiser.state[parameter] = saved[name]
            self.at = Progress(**header["progress"])
        except (RuntimeError, TypeError, KeyError) as error:
            raise FileError(f"{self.checkpoint} is damaged; remove it to start anew ({error})") from error

    def states(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, parameter in self.model.named_parameters():
            for optimiser in self.optimisers:
                if parameter in optimiser.state:
                    yield name, optimiser.state[parameter]


def _optimisers(model: nn.Module, plan: Plan) -> list[torch.optim.Optimizer]:
    """Adam, by rows for layers with sparse gradients. Weight decay is for matrices, and not for those."""
    by_row = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.sparse}
    learned = [p for p in model.parameters() if p.requires_grad]
    rows = [p for p in learned if id(p) in by_row]
    dense = [p for p in learned if id(p) not in by_row]
    groups = [
        {"params": [p for p in dense if p.ndim > 1], "weight_decay": plan.weight_decay},
        {"params": [p for p in dense if p.ndim <= 1], "weight_decay": 0.0},
    ]
    found: list[torch.optim.Optimizer] = []
    if dense:
        found.append(torch.optim.AdamW([g for g in groups if g["params"]], lr=plan.learning_rate, fused=True))
    if rows:
        found.append(RowAdam(rows, lr=plan.learning_rate))
    return found


def _setup(fabric: Fabric, model: nn.Module, optimisers: Sequence[torch.optim.Optimizer]) -> Any:
    return fabric.setup(model, *optimisers)


def _clip(parameters: Iterator[nn.Parameter], longest: float) -> None:
    """Scale all gradients so that together they are no longer than `longest`; torch's own does not take sparse ones."""
    found = [p.grad for p in parameters if p.grad is not None]
    values = [g._values() if g.is_sparse else g for g in found]
    if not values:
        return
    length = torch.stack(torch._foreach_norm(values)).norm()
    scale = (longest / (length + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(values, scale)


@contextmanager
def _stopping(run: _Run) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run after the step that is under way; a second one ends it at once."""

    def told(number: int, frame: Any) -> None:
        if run.told:
            raise KeyboardInterrupt
        run.told = True

    try:
        before = {s: signal.signal(s, told) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are someone else's
        yield
        return
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
