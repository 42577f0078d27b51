"""Attack holobind and count what survives: kills, mutated files, full disks, expressions, command lines.

    .venv/bin/python benchmarks/campaign.py [--minutes 15] [--seed 0] [--only files expressions ...]

Each attack has an expected outcome: a valid result, or one clear error line. Anything else is a failure: a traceback, a
crash of the interpreter, a hang, memory beyond a limit, a truncated or changed file, a resumed run that ends with other
bytes. Attacks that may crash the interpreter run in worker processes with limits of memory and time; a failure is
printed with the seed that repeats it. The last line printed is JSON.
"""

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

WORKER_MEMORY_BYTES = 4 << 30
BATCH_ATTACKS = 400  # of one worker process; its start is shared by them
BATCH_SECONDS = 120.0
COMMAND_SECONDS = 120.0
EXTREMES = (0, 1, -1, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63), 10**6)
WORDS = ("red", "cat", "a", "x1", "first", "name", '"two words"', "'q'", "⊗", "naïve", "30", "0.5", "1e3", "1e400", "")
SIGNS = ("*", "+", "-", "~", "(", ")", " ", "**", "++", "\n", "\t", "\x00", "\ud800", "_", ",", "=", "/")

Outcome = tuple[str, bool, str]  # kind of attack, whether it survived, details of a failure


# Mutations of bytes


def mutate(data: bytes, draw: random.Random) -> bytes:
    """One to four changes: flipped bits, extreme integers, cuts, repeats, insertions."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(changed) + 1)
        match draw.randrange(6):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << draw.randrange(8)
            case 1:
                number = struct.pack("<q", draw.choice(EXTREMES) if draw.random() < 0.5 else draw.getrandbits(62))
                size = draw.choice((2, 4, 8))
                changed[at : at + size] = number[:size]
            case 2:
                del changed[at:]
            case 3:
                del changed[at : at + draw.randint(1, 50)]
            case 4:
                changed[at:at] = changed[at : at + draw.randint(1, 50)]
            case _:
                changed[at:at] = draw.choice(
                    (b"\x00", b"\xff" * 9, b"\n", b"9" * 5000, b"{", b'"', b"1e999", b",", b":")
                )
    return bytes(changed)


def mutate_safetensors(data: bytes, draw: random.Random) -> bytes:
    """A change of the file's structure: of a value in its JSON header, or of the integers of a tensor."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    body = bytearray(data[8 + length :])
    tensors = [name for name in header if name != "__metadata__"]
    if draw.random() < 0.5 and tensors:
        info = header[draw.choice(tensors)]
        first, last = info["data_offsets"]
        width = {"I64": 8, "I32": 4, "F32": 4, "F16": 2, "I16": 2, "U8": 1, "I8": 1}.get(info["dtype"], 1)
        for _ in range(draw.randint(1, 3)):
            if last - first >= width:
                at = first + draw.randrange((last - first) // width) * width
                number = draw.choice(EXTREMES) & (2 ** (8 * width) - 1)
                body[at : at + width] = number.to_bytes(width, "little")
    else:
        described = json.loads(header["__metadata__"]["holobind"])
        _change(described, draw)
        header["__metadata__"]["holobind"] = json.dumps(described)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bytes(body)


def _change(value: Any, draw: random.Random) -> None:
    """Change one value somewhere in nested JSON."""
    while isinstance(value, dict | list) and value:
        key = draw.choice(list(value)) if isinstance(value, dict) else draw.randrange(len(value))
        if isinstance(value[key], dict | list) and value[key] and draw.random() < 0.8:
            value = value[key]
            continue
        value[key] = draw.choice((*EXTREMES, None, "", "x" * 1000, [], {}, [0] * 1000, True, 1e308, "NaN", [[[]]]))
        return


# Loaders: what reads a file, and an example of it


def _make_examples(folder: Path) -> None:
    """A valid file for every loader; small, so that mutations reach everything."""
    import numpy as np

    import holobind as hb
    from holobind.training import loop
    from holobind.training.config import split_options

    texts = [f"{word} number{i} of the {other}" for i in range(12) for word in ("read", "join") for other in "ab"]
    labels = [[f"l{i % 5}", f"l{i % 3}"] for i in range(len(texts))]
    lines = [json.dumps({"text": t, "labels": names}) for t, names in zip(texts, labels, strict=True)]
    (folder / "data.jsonl").write_text("\n".join(lines), encoding="utf-8")
    tsv = ["\t".join([t, *names]) for t, names in zip(texts, labels, strict=True)]
    (folder / "data.tsv").write_text("\n".join(tsv), encoding="utf-8")
    dataset = hb.data.load(folder / "data.jsonl", cache=False)
    hb.data.write(dataset, folder / "data.txt")
    hb.data.write(dataset, folder / "data.svm")
    hb.data.write(dataset, folder / "npz", to="npz")
    hb.data.write(dataset, folder / "data.txt.bz2")
    hb.data.write(dataset, folder / "data.txt.xz")
    (folder / "words.vec").write_text("2 3\nread 1 2 3\njoin 4 5 6\n", encoding="utf-8")
    small = {"hidden": (4,), "dim": 6, "epochs": 1, "embedding_dim": 4, "filters": 2, "hidden_size": 3}
    for name, options in {
        "ridge_knn": {},
        "ridge": {"knn_weight": 0},
        "fc": {"network": "fc", **{k: small[k] for k in ("hidden", "dim", "epochs")}},
        "cnn": {
            "network": "cnn",
            "tokenizer": "bpe",
            "vocab_size": 300,
            **{k: v for k, v in small.items() if k != "hidden_size"},
        },
        "lstm": {"network": "lstm", **{k: v for k, v in small.items() if k != "filters"}},
        "linear": {"head": "linear"},
    }.items():
        model = hb.learn(dataset.train, *split_options(options), label_names=dataset.label_names, tfidf=dataset.tfidf)
        model.save(folder / f"{name}.model")
    trees = hb.data.synthetic("delicious", scale=0.2)
    hb.learn(trees.train).save(folder / "forest.model")
    vocabulary = hb.Vocabulary(16)
    vocabulary.parse("red*cat + blue*dog")
    vocabulary.save(folder / "names.vocabulary")
    hb.LargeVocabulary([f"n{i}" for i in range(40)], 16).save(folder / "large.vocabulary")
    fc = hb.load(folder / "fc.model")
    loop.fit(
        fc,
        fc.examples(dataset.train.texts),
        dataset.train.Y,
        hb.TrainConfig(epochs=1),
        checkpoint=folder / "fc.checkpoint",
    )
    assert np.isfinite(fc.scores(["read"])).all()


def _read_model(path: Path) -> None:
    """Load a model and use all of it: what passes the checks must be safe to predict with."""
    import numpy as np

    import holobind as hb
    from holobind.cli.describe import description, table

    model = hb.load(path)
    inputs: Any = ["read number1", "", "join b"]
    if not model.reads_texts:
        inputs = np.eye(3, model.network.n_features or 1, dtype=np.float32)
    model.top_k(inputs, min(3, model.n_labels))
    table({"path": str(path), **description(model), "bytes": 1})


def _read_checkpoint(path: Path) -> None:
    import holobind as hb
    from holobind.training import loop

    model = hb.load(path.parent / "fc.model")
    split = hb.data.load(path.parent / "data.jsonl", cache=False).train
    examples = model.examples(split.texts)
    loop.fit(model, examples, split.Y, hb.TrainConfig(epochs=1), checkpoint=path, resume=True)


def _read_vocabulary(path: Path) -> None:
    import holobind as hb

    vocabulary = hb.Vocabulary.load(path)
    if len(vocabulary):
        vocabulary.clean_up(vocabulary[next(iter(vocabulary))], 2)


def _read_data(path: Path) -> None:
    import holobind as hb

    hb.data.statistics(hb.data.load(path, cache=False))


def _read_cached_data(path: Path) -> None:
    """The text is valid; its cache is the file that was changed."""
    import holobind as hb

    hb.data.load(path.parent / "data.txt", cache=True)


def _read_word_vectors(path: Path) -> None:
    from holobind.data.tokenizer import Tokenizer, load_word_vectors

    load_word_vectors(path, Tokenizer.train(["read the file", "join the read"], min_count=1))


LOADERS: dict[str, Callable[[Path], None]] = {
    **{f"{name}.model": _read_model for name in ("ridge_knn", "ridge", "fc", "cnn", "lstm", "linear", "forest")},
    "fc.checkpoint": _read_checkpoint,
    "names.vocabulary": _read_vocabulary,
    "large.vocabulary": _read_vocabulary,
    **{f"data.{suffix}": _read_data for suffix in ("jsonl", "tsv", "txt", "svm", "txt.bz2", "txt.xz")},
    "words.vec": _read_word_vectors,
}
SAFETENSORS = (".model", ".checkpoint", ".vocabulary")


def attack_file(folder: Path, loader: str, seed: int) -> str:
    """Read a mutated file. Returns "" or what went wrong; a crash ends the process."""
    draw = random.Random(f"{loader} {seed}")
    data = (folder / loader).read_bytes()
    structured = loader.endswith(SAFETENSORS) and draw.random() < 0.6
    changed = mutate_safetensors(data, draw) if structured else mutate(data, draw)
    path = folder / f"changed-{os.getpid()}-{loader}"
    path.write_bytes(changed)
    return _expected_error(lambda: LOADERS[loader](path))


def attack_expression(seed: int) -> str:
    """Evaluate and query a random statement."""
    import holobind as hb

    draw = random.Random(seed)
    text = "".join(draw.choice(WORDS if draw.random() < 0.6 else SIGNS) for _ in range(draw.randint(0, 30)))
    if draw.random() < 0.02:
        text *= draw.choice((50, 5000))

    def evaluate() -> None:
        vocabulary = hb.Vocabulary(16, vsa=draw.choice(("unitary-hrr", "hrr-exact", "vtb", "map-c-exact")))
        vector = vocabulary.parse(text)
        if not vector.isfinite().all():
            raise AssertionError(f"{text[:60]!r} has a vector that is not finite")
        if len(vocabulary):
            vocabulary.ask(vector, next(iter(vocabulary)), 2)

    return _expected_error(evaluate)


def attack_command(folder: Path, seed: int) -> str:
    """Run a random command line in this process: exit code 0, or 2 with one line on stderr."""
    from holobind.cli import main as cli

    draw = random.Random(seed)
    values = ("0", "-1", "1e999", "nan", "9" * 5000, "x", "", "\udcff", "12", "0.5", "fc", str(folder / "data.jsonl"))
    files = [str(folder / name) for name in ("data.jsonl", "ridge_knn.model", "names.vocabulary", "missing", "npz", "")]
    verbs: dict[str, tuple[str, ...]] = {
        "evaluate": ("-k", "--json"),
        "predict": ("-k", "--threshold", "--format", "--ids", "--skip-bad", "--out"),
        "inspect": ("--json",),
        "ask": ("--query", "--dim", "--seed", "-k", "--has", "--vocabulary"),
        "data stats": ("--json", "--plot"),
        "train": ("--dim", "--l2", "--knn-weight", "--network", "--hidden", "--loss", "--seed", "--metric"),
        "nonsense": ("--help",),
    }
    verb = draw.choice(list(verbs))
    arguments = [*verb.split(), *(draw.choice(files) for _ in range(draw.randint(0, 3)))]
    for _ in range(draw.randint(0, 3)):
        arguments += [draw.choice(verbs[verb]), *([draw.choice(values)] if draw.random() < 0.8 else [])]
    if verb == "train":
        arguments += ["--out", str(folder / f"out-{os.getpid()}.safetensors")]
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    before, sys.argv = sys.argv, ["holobind", *arguments]
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(b""))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
        code: Any = 0
    except SystemExit as ended:
        code = ended.code or 0
    except Exception:
        return f"{arguments}: {traceback.format_exc(limit=-3)}"
    finally:
        sys.argv, sys.stdin = before, stdin
    if code == 2 and verb != "nonsense" and err.getvalue().count("\n") != 1 and "Usage" not in err.getvalue():
        return f"{arguments}: exit code 2 with {err.getvalue().count(chr(10))} lines: {err.getvalue()[:300]!r}"
    return "" if code in (0, 2) else f"{arguments}: exit code {code}"


def _expected_error(action: Callable[[], None]) -> str:
    """Run an action that may raise a HolobindError of one line, and nothing else."""
    from holobind.errors import HolobindError

    try:
        action()
    except HolobindError as error:
        return "" if "\n" not in str(error) else f"an error of several lines: {error}"
    except Exception:
        return traceback.format_exc(limit=-4)
    return ""


# Workers: in-process attacks, in batches that may crash


def _work(folder: str, kind: str, seeds: list[int], connection: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (WORKER_MEMORY_BYTES, WORKER_MEMORY_BYTES))
    os.environ["HOLOBIND_CACHE"] = f"{folder}/cache-{os.getpid()}"
    sys.stderr = io.StringIO()
    import torch

    torch.set_num_threads(1)
    place = Path(folder)
    for seed in seeds:
        connection.send(("start", seed))
        if kind == "expressions":
            problem = attack_expression(seed)
        elif kind == "commands":
            problem = attack_command(place, seed)
        else:
            problem = attack_file(place, kind, seed)
        connection.send(("done", seed, problem))
    connection.close()


def run_batch(folder: Path, kind: str, seeds: list[int]) -> Iterator[Outcome]:
    """Run attacks in a process of their own. A crash or a hang fails the attack under way; the rest is run again."""
    left = list(seeds)
    context = multiprocessing.get_context("forkserver")
    while left:
        ours, its = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(str(folder), kind, left, its))
        process.start()
        its.close()
        current, ended = left[0], False
        while not ended:
            try:
                if not ours.poll(BATCH_SECONDS):
                    raise EOFError
                event = ours.recv()
            except EOFError:
                ended = True
                continue
            current = event[1]
            if event[0] == "done":
                left.remove(current)
                yield kind, not event[2], f"seed {current}: {event[2]}" if event[2] else ""
        hung = process.is_alive() and left
        process.join(1 if not hung else 0)
        if process.is_alive():
            process.kill()
            process.join()
        if left:
            left.remove(current)
            how = "no answer in time" if hung else f"the process ended with {process.exitcode}"
            yield kind, False, f"seed {current}: {how}"


# Kills and full disks: the command line in processes that end too early


AUDIT_KILL = """
import os, runpy, signal, sys
event, number = {event!r}, {number}
seen = [0]
def hook(name, arguments):
    if name == event:
        seen[0] += 1
        if seen[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
sys.argv = ["holobind", *{arguments!r}]
runpy.run_module("holobind", run_name="__main__")
"""
RUNS = {
    "default": [],
    "fc": ["--network", "fc", "--hidden", "8", "--dim", "8", "--epochs", "6"],
    "linear skip": ["--network", "fc", "--linear-skip", "--hidden", "8", "--dim", "8", "--epochs", "6"],
    "cnn": ["--network", "cnn", "--filters", "2", "--embedding-dim", "4", "--hidden", "4", "--epochs", "4"],
    "lstm": ["--network", "lstm", "--hidden-size", "3", "--embedding-dim", "4", "--hidden", "4", "--epochs", "4"],
}
AUDIT_EVENTS = ("os.rename", "open", "os.remove", "os.listdir")


def _command(*arguments: str, limit: int | None = None, kill: tuple[str, int] | None = None, ranks: int = 1) -> Any:
    """A process of the command line; `limit` bounds the bytes of a file, `kill` is an audit event and its count."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if kill is not None:
        script = AUDIT_KILL.format(event=kill[0], number=kill[1], arguments=list(arguments))
        command = [sys.executable, "-c", script]
    elif ranks > 1:
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        command = [sys.executable, *launch, "-m", "holobind", *arguments]
    else:
        command = [sys.executable, "-m", "holobind", *arguments]

    def bound() -> None:
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=bound,  # noqa: PLW1509 - no threads here
        start_new_session=True,
    )


def attack_kill(folder: Path, wanted: dict[str, bytes], seed: int) -> str:
    """Kill a training run once or several times, then resume it: the model has the bytes of an uninterrupted run."""
    draw = random.Random(seed)
    name = draw.choice(list(RUNS))
    out = folder / f"killed-{seed}.safetensors"
    arguments = ["train", str(folder / "data.jsonl"), *RUNS[name], "--out", str(out)]
    for _ in range(draw.randint(1, 3)):
        if draw.random() < 0.5:
            process = _command(*arguments, "--resume", kill=(draw.choice(AUDIT_EVENTS), draw.randint(1, 60)))
        else:
            process = _command(*arguments, "--resume")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0.5, 5))
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(draw.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))
        _, err = process.communicate(timeout=COMMAND_SECONDS)
        if b"Traceback" in err and b"KeyboardInterrupt" not in err:
            return f"{name}, after a signal: {err.decode(errors='replace')[-500:]}"
        if out.exists() and out.read_bytes() != wanted[name]:
            return f"{name}: a killed run left a model with other bytes"
    process = _command(*arguments, "--resume")
    _, err = process.communicate(timeout=COMMAND_SECONDS)
    if process.returncode or not out.exists():
        return f"{name}: the resumed run ended with {process.returncode}: {err.decode(errors='replace')[-500:]}"
    same = out.read_bytes() == wanted[name]
    left = [path.name for path in folder.glob(f"{out.name}*") if path.name not in (out.name, f"{out.name}.lock")]
    out.unlink()
    for file in left:
        (folder / file).unlink(missing_ok=True)
    if not same:
        return f"{name}: the resumed run ended with other bytes"
    return f"{name}: files left behind: {left}" if left else ""


def attack_convert(folder: Path, seed: int) -> str:
    """Kill a conversion: the target is complete or absent."""
    import holobind as hb

    draw = random.Random(seed)
    target = folder / f"converted-{seed}"
    to = draw.choice(("npz", "svmlight", "xml"))
    arguments = ["data", "convert", str(folder / "npz"), str(target), "--to", to]
    process = _command(*arguments, kill=(draw.choice(AUDIT_EVENTS), draw.randint(1, 200)))
    process.communicate(timeout=COMMAND_SECONDS)
    problem = ""
    if target.exists():
        whole, found = hb.data.load(folder / "npz", cache=False), hb.data.load(target, cache=False)
        if (whole.train.X != found.train.X).nnz or (whole.train.Y != found.train.Y).nnz:
            problem = "a killed conversion left other data"
        shutil.rmtree(target)
    return problem


def attack_rank(folder: Path, seed: int) -> str:
    """Kill one of two processes of a distributed run: the run ends, and nothing is left half written."""
    draw = random.Random(seed)
    out = folder / f"rank-{seed}.safetensors"
    process = _command("train", str(folder / "data.jsonl"), *RUNS["fc"], "--epochs", "200", "--out", str(out), ranks=2)
    time.sleep(draw.uniform(4, 9))
    pattern = f"-u -m holobind train.*{out.name}|-m holobind train.*{out.name}"
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False).stdout.split()
    ranks = [int(pid) for pid in found if int(pid) != process.pid]
    if ranks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(draw.choice(ranks), signal.SIGKILL)
    try:
        process.communicate(timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return "the run did not end after one of its processes was killed"
    return "" if not out.exists() or process.returncode == 0 else "a failed run left a model"


def attack_disk(folder: Path, seed: int) -> str:
    """Let files end at a limit, as on a full disk: one line, exit code 2, and the file that was there stays."""
    draw = random.Random(seed)
    out = folder / f"full-{seed}"
    out.write_bytes(b"precious")
    limit = draw.choice((0, 1, 100, 4096, 8192, 16384))
    match draw.randrange(3):
        case 0:
            arguments = ["train", str(folder / "data.jsonl"), "--out", str(out)]
        case 1:
            lines = folder / "many.txt"
            lines.write_text("read number1\n" * 3000, encoding="utf-8")
            arguments = ["predict", str(folder / "ridge_knn.model"), str(lines), "--out", str(out)]
        case _:
            arguments = ["train", str(folder / "data.jsonl"), *RUNS["fc"], "--out", str(out)]
    process = _command(*arguments, limit=limit)
    _, err = process.communicate(timeout=COMMAND_SECONDS)
    kept = out.read_bytes()
    out.unlink()
    for path in folder.glob(f"{out.name}*"):
        path.unlink()
    if process.returncode == 0:
        return "" if len(kept) <= limit else f"{arguments[0]} reports success beyond the limit {limit}"
    if kept != b"precious":
        return f"{arguments[0]} with the limit {limit} destroyed a file"
    if process.returncode != 2 or err.count(b"\n") != 1:
        return f"{arguments[0]} with the limit {limit}: exit code {process.returncode}, {err.decode()[-400:]}"
    return ""


def _slow(folder: Path, seeds: Iterator[int]) -> dict[str, Callable[[], str]]:
    wanted: dict[str, bytes] = {}
    for name, options in RUNS.items():
        out = folder / "wanted.safetensors"
        process = _command("train", str(folder / "data.jsonl"), *options, "--out", str(out))
        _, err = process.communicate(timeout=COMMAND_SECONDS)
        if process.returncode:
            raise RuntimeError(err.decode())
        wanted[name] = out.read_bytes()
    return {
        "kills": lambda: attack_kill(folder, wanted, next(seeds)),
        "killed converts": lambda: attack_convert(folder, next(seeds)),
        "killed ranks": lambda: attack_rank(folder, next(seeds)),
        "full disks": lambda: attack_disk(folder, next(seeds)),
    }


def run(
    minutes: float, seed: int, only: list[str], on_failure: Callable[[str], None] = print
) -> dict[str, Counter[str]]:
    """Attack until the time is over; most of it goes to kills, which take seconds each."""
    table: dict[str, Counter[str]] = {}
    ends = time.monotonic() + 60 * minutes

    def count(outcome: Outcome) -> None:
        kind, survived, details = outcome
        row = table.setdefault(kind, Counter())
        row["tried"] += 1
        row["survived" if survived else "failed"] += 1
        if details:
            on_failure(f"{kind}, {details}")

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _make_examples(folder)
        fast = [*LOADERS, "expressions", "commands"]
        seeds = iter(range(seed * 10**9, (seed + 1) * 10**9))
        slow = _slow(folder, seeds) if any(name in only for name in ("kills", "disks")) else {}
        fast = [kind for kind in fast if ("files" in only and kind in LOADERS) or kind in only]
        while time.monotonic() < ends:
            for kind in fast:
                for outcome in run_batch(folder, kind, [next(seeds) for _ in range(BATCH_ATTACKS)]):
                    count(outcome)
                if time.monotonic() >= ends:
                    break
            for kind, attack in slow.items():
                if (kind == "full disks" and "disks" not in only) or (kind != "full disks" and "kills" not in only):
                    continue
                for _ in range(1 if kind == "killed ranks" else 4):
                    problem = attack()
                    count((kind, not problem, problem))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=0)
    groups = ("files", "expressions", "commands", "kills", "disks")
    parser.add_argument("--only", nargs="+", choices=groups, default=list(groups))
    chosen = parser.parse_args()
    began = time.monotonic()
    table = run(chosen.minutes, chosen.seed, chosen.only)
    print(f"{'attack':24} {'tried':>10} {'survived':>10} {'failed':>8}")
    for kind, row in sorted(table.items()):
        print(f"{kind:24} {row['tried']:>10,} {row['survived']:>10,} {row['failed']:>8,}")
    total = sum(table.values(), Counter())
    rows = {kind: dict(row) for kind, row in table.items()}
    print(
        json.dumps(
            {
                "bench": "campaign",
                "seed": chosen.seed,
                "minutes": round((time.monotonic() - began) / 60, 1),
                "rows": rows,
                "total": dict(total),
            }
        )
    )
    sys.exit(1 if total["failed"] else 0)


if __name__ == "__main__":
    main()
