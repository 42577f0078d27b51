"""Checkpoints of a fit in closed form: a folder with a file for each result, from which the same fit continues.

Every step of a fit follows from the data and the options. So a result that a file has need not be computed again, and
the fit ends with the same bytes. The results:

    search                     the penalties and tolerances that were chosen
    STAGE-I-FIRST-WIDTH.RANK   a block of columns of the I-th solution of a stage, by the process that solved it
    STAGE-outputs              outputs of held-out rows
    tree-*                     a label tree

A file is a `_storage` file of kind "checkpoint", and its header has the digest of the run. The file `run` says what
must be the same for the fit to continue. A result of several processes is written by the first one and read by all.
"""

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from holobind import _storage as storage
from holobind._files import remove_stale_parts, write_errors
from holobind._processes import ALONE, Processes
from holobind._types import FloatArray
from holobind.errors import FileError, HolobindError

VERSION = 1
MIN_SECONDS = 60.0  # of a fit, before which nothing is written: to compute it again takes no longer
SUFFIX, RUN = ".safetensors", "run"
FILE_NAME = re.compile(r"(run|search|tree-\w+|\w+(-\d+)*-outputs|\w+(-\d+)+\.\d+)\.safetensors", re.ASCII)

Result = TypeVar("Result")
Stored = tuple[dict[str, Any], dict[str, Tensor]]  # JSON values and tensors
BlockResult = tuple[int, float, float]  # iterations, |residual|^2 and |right side|^2


class FitCheckpoint:
    """The results of a fit so far; without a folder it stores nothing.

    folder      of the files; made with the first one
    run         gives JSON values, which must be the same for a fit to continue
    processes   that fit together; all see the folder
    resume      continue from the files; else they are removed
    seconds     of a fit after which results are stored; None: MIN_SECONDS
    """

    def __init__(
        self,
        folder: Path | None = None,
        run: Callable[[], dict[str, Any]] = dict,
        processes: Processes = ALONE,
        *,
        resume: bool = False,
        seconds: float | None = None,
    ) -> None:
        self.folder, self.processes = folder, processes
        self.seconds = MIN_SECONDS if seconds is None else seconds
        self._run, self._starting, self._began = run, threading.Lock(), time.monotonic()
        self._found: frozenset[str] = frozenset()  # names of results that need not be computed
        if folder is None:
            return
        if resume:
            self._found = self._list(folder)
        if RUN in self._found:
            header, _ = storage.read(self._path(RUN), "checkpoint", VERSION)
            if header.get("run") != self.run:
                raise FileError(
                    f"{folder} is of a run with other data, options or number of processes; repeat those, or remove it "
                    "to start anew"
                )
        elif processes.rank == 0:
            remove_checkpoint(folder)
        processes.any(False)  # nobody writes before all have read

    @cached_property
    def run(self) -> dict[str, Any]:
        return dict(json.loads(json.dumps(self._run(), default=str)))  # JSON has no tuples

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.run, sort_keys=True).encode()).hexdigest()

    def step(
        self,
        name: str,
        compute: Callable[[], Result],
        pack: Callable[[Result], Stored],
        unpack: Callable[[dict[str, Any], dict[str, Tensor]], Result],
        *,
        replaces_blocks: bool = False,
    ) -> Result:
        """The result of a step that all processes take together: the stored one, or what `compute` returns.

        unpack            raises an error for what no fit can have stored
        replaces_blocks   remove the blocks of the stage of this name, which are then not needed any more
        """
        if name in self._found:
            return self._read(name, unpack)
        result = compute()
        if self._is_due() and self.processes.rank == 0:
            self._write(name, *pack(result))
            if replaces_blocks and self.folder is not None:
                for file in self.folder.glob(f"{name}-*{SUFFIX}"):
                    file.unlink(missing_ok=True)
        return result

    def load_block(
        self, name: str, shape: tuple[int, int], *, together: bool = False
    ) -> tuple[FloatArray, BlockResult] | None:
        """A block of columns and how it was solved, if this process has stored it.

        together   only if all processes have stored theirs: they solve their blocks at the same time
        """
        names = [f"{name}.{rank}" for rank in range(self.processes.size)]
        own = names[self.processes.rank]
        if not self._found.issuperset(names if together else [own]):
            return None
        wanted = {"columns": torch.empty(shape, device="meta"), "solved": torch.empty(3, device="meta").double()}

        def unpack(state: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[FloatArray, BlockResult]:
            storage.check_tensors("block", wanted, tensors)
            iterations, residual_sq, target_sq = tensors["solved"].tolist()
            return tensors["columns"].numpy(), (int(iterations), residual_sq, target_sq)

        return self._read(own, unpack)

    def save_block(self, name: str, columns: FloatArray, solved: BlockResult) -> None:
        """Store a block of columns of this process."""
        if self._is_due():
            tensors = {"columns": torch.from_numpy(columns), "solved": torch.tensor(solved, dtype=torch.float64)}
            self._write(f"{name}.{self.processes.rank}", {}, tensors)

    def _is_due(self) -> bool:
        return self.folder is not None and time.monotonic() - self._began >= self.seconds

    def _list(self, folder: Path) -> frozenset[str]:
        """The results in the folder; none if nothing says of which run they are."""
        names = sorted(file.name.removesuffix(SUFFIX) for file in _files(folder))
        digest = np.frombuffer(hashlib.sha256("\n".join(names).encode()).digest()[:8], np.int64)
        if len({int(each[0]) for each in self.processes.gather(digest)}) > 1:
            raise FileError(f"{folder} is not the same for all processes; put it on a file system that they share")
        return frozenset(names) if RUN in names else frozenset()

    def _read(self, name: str, unpack: Callable[[dict[str, Any], dict[str, Tensor]], Result]) -> Result:
        path = self._path(name)
        header, tensors = storage.read(path, "checkpoint", VERSION)
        try:
            if header.get("run") != self.digest or not isinstance(header.get("state"), dict):
                raise FileError("it is of another run")
            return unpack(header["state"], tensors)
        except (HolobindError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise FileError(f"{path} is damaged ({error}); remove {self.folder} to start anew") from error

    def _write(self, name: str, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        path = self._path(name)
        with write_errors(path), self._starting:
            path.parent.mkdir(exist_ok=True)
            if self.processes.rank == 0 and not self._path(RUN).exists():
                storage.write(self._path(RUN), "checkpoint", VERSION, {"run": self.run}, {})
        storage.write(path, "checkpoint", VERSION, {"run": self.digest, "state": state}, tensors)

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}{SUFFIX}"


NO_CHECKPOINT = FitCheckpoint()


def remove_checkpoint(folder: Path) -> None:
    """Remove the files of a checkpoint, and the folder if it has nothing else."""
    for file in _files(folder):
        file.unlink(missing_ok=True)
    remove_stale_parts(folder)
    with suppress(OSError):
        folder.rmdir()


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if FILE_NAME.fullmatch(file.name)] if folder.is_dir() else []
