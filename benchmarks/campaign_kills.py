"""Attacks of benchmarks/campaign.py that end a process too early: kills, and files that end at a limit.

A run is a fork of the campaign's process, which has imported everything: it starts in milliseconds, so that a kill hits
the work and not the start. One run in FRESH_ONE_IN is a new interpreter, killed at any time since its start.
"""

import contextlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMAND_SECONDS = 600.0  # without an answer for so long, on a machine that may be busy, a run hangs
FRESH_ONE_IN = 10
FRESH_SECONDS = 6.0  # of a new interpreter, within which it is killed
MAX_FILE_BYTES = 4096  # of the limits at which a write kills its process; models have a few thousand
INTERRUPTED = 130
KILL_EVENTS = (
    *("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.listdir", "os.scandir", "os.truncate"),
    *("fcntl.flock", "os.fsync"),
)
SMALL = ("--hidden", "4", "--epochs", "4")
RUNS = {
    "default": (),
    "ridge": ("--knn-weight", "0"),
    "fc": ("--network", "fc", "--dim", "8", *SMALL),
    "linear skip": ("--network", "fc", "--linear-skip", "--dim", "8", *SMALL),
    "linear head": ("--network", "fc", "--head", "linear", *SMALL),
    "cnn": ("--network", "cnn", "--filters", "2", "--embedding-dim", "4", *SMALL),
    "cnn bpe": ("--network", "cnn", "--filters", "2", "--embedding-dim", "4", "--tokenizer", "bpe", *SMALL),
    "lstm": ("--network", "lstm", "--hidden-size", "3", "--embedding-dim", "4", *SMALL),
}
SCRIPT = """
import contextlib, json, sys
from holobind.cli.main import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["holobind", *arguments]
    with contextlib.suppress(SystemExit):
        main()
"""


class Run:
    """A command line in a process of its own. `events` counts its system calls, at one of which it can end."""

    def __init__(
        self,
        *arguments: str,
        kill_at: int | None = None,
        max_file_bytes: int | None = None,
        signal_beyond: bool = False,
        cache_all: bool = False,
    ) -> None:
        """
        kill_at          the number of the system call, of those in KILL_EVENTS, before which SIGKILL comes
        max_file_bytes   limit of the size of a file; writing beyond fails, or ends the process with `signal_beyond`
        cache_all        cache parsed data however small it is
        """
        pipes = {name: os.pipe() for name in ("out", "err", "events")}  # which no limit of file sizes concerns
        self._streams = [first for first, _ in pipes.values()]
        ends = [last for _, last in pipes.values()]
        self._process = multiprocessing.get_context("fork").Process(
            target=_run_command, args=(ends, arguments, kill_at, max_file_bytes, signal_beyond, cache_all)
        )
        self._process.start()
        for end in ends:
            os.close(end)

    def signal(self, seconds: float, number: int) -> None:
        """Send a signal after some seconds, unless the run has ended."""
        self._process.join(seconds)
        with contextlib.suppress(ProcessLookupError):
            if self._process.is_alive() and self._process.pid:
                os.kill(self._process.pid, number)

    def end(self) -> tuple[int, str, str, int]:
        """(exit code, stdout, stderr, number of system calls) after its end; -1 stands for a run that hangs."""
        self._process.join(COMMAND_SECONDS)
        code: Any = self._process.exitcode
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
            code = -1
        texts = []
        for stream in self._streams:
            with open(stream, errors="replace") as file:  # noqa: PTH123
                texts.append(file.read())
        return code, texts[0], texts[1], int(texts[2] or 0)


def _run_command(
    ends: list[int], arguments: tuple[str, ...], kill_at: int | None, limit: int | None, beyond: bool, cache_all: bool
) -> None:
    """The life of a fork: streams, limits and kill points, then the command line."""
    from holobind.cli import main as cli
    from holobind.data import sparse_text

    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))  # until the command line has a handler
    for number, stream in enumerate((os.open(os.devnull, os.O_RDONLY), *ends[:2])):
        os.dup2(stream, number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    if cache_all:
        sparse_text.MIN_BYTES_TO_CACHE = 0
    seen = 0

    def count(name: str, _: object) -> None:
        nonlocal seen
        if name in KILL_EVENTS:
            seen += 1
            if seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def fsync(file: int, real: Callable[[int], None] = os.fsync) -> None:
        count("os.fsync", file)  # which Python does not report
        real(file)

    os.fsync = fsync
    sys.addaudithook(count)
    if limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if beyond else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    sys.argv = ["holobind", *arguments]
    code: Any = 1
    try:
        cli.main()
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os.write(ends[2], str(seen).encode())
    os._exit(code)


def _run_fresh(*arguments: str, ranks: int = 1) -> "subprocess.Popen[bytes]":
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    command = [sys.executable, *launch, "-m", "holobind", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


class Kills:
    """The attacks, and what uninterrupted runs give: models of a new interpreter, and the statistics of the data."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.counts = folder, Counter[str]()
        self.data, out = str(folder / "data.jsonl"), folder / "out"
        commands = [
            ["train", self.data, *options, "--out", str(folder / f"wanted {name}")] for name, options in RUNS.items()
        ]
        subprocess.run([sys.executable, "-c", SCRIPT, json.dumps(commands)], check=True, capture_output=True)
        self.wanted: dict[str, bytes] = {}
        self.seconds: dict[str, float] = {}
        self.events: dict[str, int] = {}
        for name, options in RUNS.items():
            self._measure(name, "train", self.data, *options, "--out", str(out))
            self.wanted[name] = (folder / f"wanted {name}").read_bytes()
        self.convert = ("data", "convert", str(folder / "npz"))
        self._measure("convert", *self.convert, str(folder / "wanted-data"))
        self.stats = ("data", "stats", str(folder / "data.txt"), "--json")
        self.wanted["stats"] = self._measure("cache", *self.stats, cache_all=True).encode()

    def _measure(self, name: str, *arguments: str, **options: Any) -> str:
        began = time.monotonic()
        code, out, err, self.events[name] = Run(*arguments, **options).end()
        self.seconds[name] = time.monotonic() - began
        if code:
            raise RuntimeError(f"{name}: {code}: {err}")
        return out

    def kill(self, draw: random.Random, name: str, *arguments: str, **options: Any) -> str:
        """Start a run and end it: before a system call, in a write, or by a signal at any time. Gives a problem."""
        if draw.randrange(FRESH_ONE_IN) == 0 and name in RUNS:
            return self._kill_fresh(draw, *arguments)
        kind, sent = draw.choice(("call", "write", "time")), 0
        if kind == "call":
            run = Run(*arguments, kill_at=draw.randint(1, self.events[name]), **options)
        elif kind == "write":
            limit = draw.randrange(MAX_FILE_BYTES)
            run = Run(*arguments, max_file_bytes=limit, signal_beyond=True, **options)
        else:
            sent = draw.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
            run = Run(*arguments, **options)
            run.signal(draw.uniform(0, self.seconds[name]), sent)
        code, _, err, _ = run.end()
        self.counts["killed" if code in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGXFSZ) else "ended"] += 1
        allowed = {
            "call": (0, -signal.SIGKILL),
            "write": (0, -signal.SIGXFSZ),
            "time": (0, -sent) if sent == signal.SIGKILL else (0, -sent, INTERRUPTED),
        }[kind]
        if code not in allowed or "Traceback" in err:
            return f"{name}, {kind} {sent}: exit code {code}: {err[-500:]}"
        return ""

    def _kill_fresh(self, draw: random.Random, *arguments: str) -> str:
        """Kill a new interpreter, perhaps in an import. Before `main`, Ctrl-C has the traceback of Python itself."""
        process = _run_fresh(*arguments)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(draw.uniform(0.5, FRESH_SECONDS))
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(draw.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))
        _, err = process.communicate(timeout=COMMAND_SECONDS)
        self.counts["killed" if process.returncode else "ended"] += 1
        if b"Traceback" in err and b"KeyboardInterrupt" not in err:
            return f"a new interpreter, after a signal: {err.decode(errors='replace')[-500:]}"
        return ""

    def attack_training(self, seed: int) -> str:
        """Kill a training run one to three times, then resume it: the model has the bytes of an uninterrupted run."""
        draw = random.Random(seed)
        name = draw.choice(list(RUNS))
        out = self.folder / f"killed-{seed}.safetensors"
        arguments = ("train", self.data, *RUNS[name], "--out", str(out), "--resume")
        for _ in range(draw.randint(1, 3)):
            if problem := self.kill(draw, name, *arguments):
                return problem
            if out.exists() and out.read_bytes() != self.wanted[name]:
                return f"{name}: a killed run left a model with other bytes"
        code, _, err, _ = Run(*arguments).end()
        if code or not out.exists():
            return f"{name}: the resumed run ended with {code}: {err[-500:]}"
        same = out.read_bytes() == self.wanted[name]
        out.unlink()
        left = self._left(out.name)
        if not same:
            return f"{name}: the resumed run ended with other bytes"
        return f"{name}: files left behind: {left}" if left else ""

    def _left(self, name: str) -> list[str]:
        """What begins with a name, or is half written; it is removed."""
        paths = [*self.folder.glob(f"{name}*"), *self.folder.glob(".holobind-*")]
        for path in paths:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return [path.name for path in paths]

    def attack_convert(self, seed: int) -> str:
        """Kill a conversion: the target is complete or absent, and the next conversion removes what was left."""
        import holobind as hb

        draw = random.Random(seed)
        target = self.folder / f"converted-{seed}"
        arguments = (*self.convert, str(target), "--to", draw.choice(("npz", "svmlight", "xml")))
        if problem := self.kill(draw, "convert", *arguments):
            return problem
        # Where the signal came after the last step but one, the target is complete: the next conversion has another.
        again = target.with_name(f"{target.name}-again") if target.exists() else target
        code, _, err, _ = Run(*(str(again) if each == str(target) else each for each in arguments)).end()
        if code:
            return f"the conversion after a killed one ended with {code}: {err[-500:]}"
        if again != target:
            shutil.rmtree(again)
        whole, found = hb.data.load(self.folder / "npz", cache=False), hb.data.load(target, cache=False)
        shutil.rmtree(target)
        if (whole.train.X != found.train.X).nnz or (whole.train.Y != found.train.Y).nnz:
            return "a killed conversion left other data"
        left = self._left(target.name)
        return f"files left behind: {left}" if left else ""

    def attack_cache(self, seed: int) -> str:
        """Kill a run that writes the cache of its data: the next one reads the same data."""
        draw = random.Random(seed)
        if draw.random() < 0.5:
            os.utime(self.folder / "data.txt")  # another key: the cache is written anew
        if problem := self.kill(draw, "cache", *self.stats, cache_all=True):
            return problem
        code, out, err, _ = Run(*self.stats, cache_all=True).end()
        if code or json.loads(out) != json.loads(self.wanted["stats"]):
            return f"after a killed run: exit code {code}, {out[:200]} {err[-300:]}"
        return ""

    def attack_rank(self, seed: int) -> str:
        """Kill one of two processes of a distributed run: the run ends, and nothing is left half written."""
        draw = random.Random(seed)
        out = self.folder / f"rank-{seed}.safetensors"
        options = (*RUNS["fc"][:-1], "100000", "--time-limit", "60", "--out", str(out))
        process = _run_fresh("train", self.data, *options, ranks=2)
        ranks: list[str] = []
        waited = time.monotonic()
        while len(ranks) < 2 and process.poll() is None and time.monotonic() - waited < COMMAND_SECONDS:
            time.sleep(0.1)
            with contextlib.suppress(FileNotFoundError):
                ranks = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        time.sleep(draw.uniform(0, 8))
        if ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(draw.choice(ranks)), signal.SIGKILL)
        try:
            process.communicate(timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "the run did not end after one of its processes was killed"
        self.counts["killed" if process.returncode else "ended"] += 1
        problem = ""
        if process.returncode and out.exists():  # killed after the model was written: it must be whole
            code, _, err, _ = Run("inspect", str(out)).end()
            problem = f"a failed run left a model that cannot be read: {err[-300:]}" if code else ""
        self._left(out.name)  # a checkpoint, from which the run could be resumed
        return problem

    def attack_disk(self, seed: int) -> str:
        """Let files end at a limit, as on a full disk: one line, exit code 2, and the file that was there stays."""
        draw = random.Random(seed)
        out, lines = self.folder / f"full-{seed}", self.folder / "many.txt"
        out.write_bytes(b"precious")
        limit = draw.choice((0, 1, 100, draw.randrange(MAX_FILE_BYTES), 4096, 8192))
        train = ("train", self.data, *RUNS[draw.choice(list(RUNS))])
        if draw.random() < 0.3:
            lines.write_text("read number1\n" * 300, encoding="utf-8")
            train = ("predict", str(self.folder / "ridge_knn.model"), str(lines))
        code, _, err, _ = Run(*train, "--out", str(out), max_file_bytes=limit).end()
        kept = out.read_bytes()
        left = set(self._left(out.name)) - {out.name, f"{out.name}.checkpoint"}
        what = f"{' '.join(train)} with the limit {limit}"
        if code == 0:
            return "" if len(kept) <= limit else f"{what} reports success beyond the limit"
        if kept != b"precious" or left:
            return f"{what} destroyed a file, or left {left}"
        return "" if code == 2 and err.count("\n") == 1 else f"{what}: exit code {code}, {err[-400:]}"

    def attacks(self) -> dict[str, tuple[int, Callable[[int], str]]]:
        """The attacks by name, with how many of each make a round."""
        return {
            "killed trainings": (20, self.attack_training),
            "killed converts": (10, self.attack_convert),
            "killed cache writers": (10, self.attack_cache),
            "killed ranks": (1, self.attack_rank),
            "full disks": (10, self.attack_disk),
        }
