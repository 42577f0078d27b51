"""Attack holobind and count what survives: kills, mutated files, full disks, expressions, command lines.

    .venv/bin/python benchmarks/campaign.py [--minutes 15] [--seed 0] [--only files ...] [--loaders parquet ...]

Each attack has an expected outcome: a valid result, or one clear error line. Anything else is a failure: a traceback, a
crash of the interpreter, a hang, memory beyond a limit, a truncated or changed file, a resumed run that ends with other
bytes. Attacks that may crash run in forks of this process, with limits of memory and CPU time; a failure is printed
with the seed that repeats it. The last line printed is JSON.

The attacks are in campaign_inputs.py (files, expressions, command lines) and campaign_kills.py (kills, full disks);
campaign_loaders.py has what reads the files, and a valid example of each.
"""

import argparse
import io
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import campaign_inputs as inputs
import campaign_kills as kills
import campaign_loaders as loaders

SPARE_MEMORY_MB = 3 << 10  # of address space of a worker, besides what the imports have taken
ATTACK_CPU_SECONDS = 10  # of one attack, in time of its processor: a busy machine does not shorten it
SILENT_SECONDS = 600.0  # without an answer of a worker, which then sleeps forever
BATCH_ATTACKS = 4000  # of one worker
FEWER_ATTACKS = {"commands": 200, "fc.checkpoint": 400, "lines.jsonl": 1000, "encoder.model": 100}  # which take longer
FEWER_ATTACKS |= {f"encoder.{name}": 100 for name in ("config.json", "tokenizer.json", "model.safetensors")}
GROUPS = ("files", "expressions", "commands", "kills", "disks")
SHARED_MEMORY = Path("/dev/shm")

Outcome = tuple[str, bool, str]  # kind of attack, whether it survived, details of a failure


# Workers: in-process attacks, in batches that may crash


def _work(folder: Path, kind: str, seeds: list[int], n_done: Any, connection: Any, spare_mb: int) -> None:
    """Run attacks one after the other; count them in shared memory, and send what went wrong with its number."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (spare_mb << 20),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stderr = io.StringIO()
    for number, seed in enumerate(seeds):
        signal.setitimer(signal.ITIMER_PROF, ATTACK_CPU_SECONDS)  # its signal ends the process, whatever it does
        if kind == "expressions":
            problem = inputs.attack_expression(seed)
        elif kind == "commands":
            problem = inputs.attack_command(folder, seed)
        else:
            problem = inputs.attack_file(folder, kind, seed)
        if problem:
            connection.send((number, problem))
        n_done.value = number + 1
    signal.setitimer(signal.ITIMER_PROF, 0)
    connection.close()


def run_batch(folder: Path, kind: str, seeds: list[int], spare_mb: int = SPARE_MEMORY_MB) -> Iterator[Outcome]:
    """Run attacks in a fork. A crash or a hang fails the attack under way; another fork continues after it."""
    context = multiprocessing.get_context("fork")
    while seeds:
        n_done, problems, silent = context.RawValue("q", 0), {}, False
        ours, its = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(folder, kind, seeds, n_done, its, spare_mb))
        process.start()
        its.close()
        while not silent:
            before = n_done.value
            try:
                if ours.poll(SILENT_SECONDS):
                    number, problem = ours.recv()
                    problems[number] = problem
                else:
                    silent = n_done.value == before
            except EOFError:
                break
        if silent:
            process.kill()
        process.join()
        ours.close()
        for path in folder.glob(f"changed-{process.pid}-*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        done = n_done.value
        if done < len(seeds):
            code: Any = process.exitcode
            hung = silent or code == -signal.SIGPROF
            problems[done] = "no answer in time" if hung else f"the process ended with {code}"
            done += 1
        for number, seed in enumerate(seeds[:done]):
            problem = problems.get(number, "")
            yield kind, not problem, f"seed {seed}: {problem}" if problem else ""
        seeds = seeds[done:]


def _batch_attacks(kind: str) -> int:
    """The attacks of one worker: fewer where each takes longer."""
    return FEWER_ATTACKS.get(kind, 2000 if kind.endswith(".model") else BATCH_ATTACKS)


class Campaign:
    """Attacks in rounds, and the table of their outcomes."""

    def __init__(
        self, folder: Path, on_disk: Path, seed: int, only: list[str], parts: list[str], spare_mb: int
    ) -> None:
        """
        folder, on_disk   empty folders: for mutated files, perhaps in memory, and for runs that are killed
        parts             parts of the names of loaders that are attacked; all without any
        spare_mb          megabytes that a worker may take
        """
        self.table: dict[str, Counter[str]] = {}
        self.killed = Counter[str]()
        self._spare_mb = spare_mb
        self._folder, self._seeds = folder, iter(range(seed * 10**9, (seed + 1) * 10**9))
        loaders.accept_any_content()
        loaders.make_examples(folder)
        if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
            raise RuntimeError("this process has threads and cannot be forked")
        files = [name for name in loaders.LOADERS if not parts or any(part in name for part in parts)]
        kinds = [*(files if "files" in only else ()), *(k for k in ("expressions", "commands") if k in only)]
        self._batches = {kind: _batch_attacks(kind) for kind in kinds}
        self._slow: dict[str, tuple[int, Callable[[int], str]]] = {}
        if "kills" in only or "disks" in only:
            for name in ("data.jsonl", "data.txt", "ridge_knn.model"):
                shutil.copy(folder / name, on_disk)
            shutil.copytree(folder / "npz", on_disk / "npz")
            killer = kills.Kills(on_disk)
            self.killed = killer.counts
            self._slow = {
                kind: each
                for kind, each in killer.attacks().items()
                if ("disks" if kind == "full disks" else "kills") in only
            }

    def run(self, ends: float) -> None:
        """Attack until a time of the monotonic clock."""
        while time.monotonic() < ends:
            for kind, n in self._batches.items():
                if time.monotonic() < ends:
                    for outcome in run_batch(self._folder, kind, [next(self._seeds) for _ in range(n)], self._spare_mb):
                        self._count(*outcome)
            for kind, (n, attack) in self._slow.items():
                for _ in range(n):
                    if time.monotonic() < ends:
                        seed = next(self._seeds)
                        problem = attack(seed)
                        self._count(kind, not problem, f"seed {seed}: {problem}" if problem else "")

    def _count(self, kind: str, survived: bool, details: str) -> None:
        row = self.table.setdefault(kind, Counter())
        row["tried"] += 1
        row["survived" if survived else "failed"] += 1
        if details:
            print(f"{kind}, {details}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--loaders", nargs="+", default=[], help="parts of names of loaders: files of these only")
    parser.add_argument("--spare-mb", type=int, default=SPARE_MEMORY_MB, help="memory that reading a file may take")
    chosen = parser.parse_args()
    if chosen.loaders:
        chosen.only = ["files"]
    began = time.monotonic()
    # One thread, before anything is imported: a process with threads cannot be forked.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    memory = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as first, tempfile.TemporaryDirectory() as second:
        os.environ["HOLOBIND_CACHE"] = f"{second}/cache"
        campaign = Campaign(Path(first), Path(second), chosen.seed, chosen.only, chosen.loaders, chosen.spare_mb)
        campaign.run(began + 60 * chosen.minutes)
    table = campaign.table
    print(f"{'attack':24} {'tried':>10} {'survived':>10} {'failed':>8}")
    for kind, row in sorted(table.items()):
        print(f"{kind:24} {row['tried']:>10,} {row['survived']:>10,} {row['failed']:>8,}")
    files = sum((row for kind, row in table.items() if kind in loaders.LOADERS), Counter[str]())
    total = sum(table.values(), Counter[str]())
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    result = {
        "bench": "campaign",
        "seed": chosen.seed,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "processor minutes": round(sum(each.ru_utime + each.ru_stime for each in used) / 60, 1),
        "rows": {kind: dict(row) for kind, row in table.items()},
        "mutated files": dict(files),
        "processes killed": campaign.killed["killed"],
        "total": dict(total),
    }
    print(json.dumps(result))
    sys.exit(1 if total["failed"] else 0)


if __name__ == "__main__":
    main()
