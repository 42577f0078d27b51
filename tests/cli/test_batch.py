"""Predictions of folders and as Parquet, one file after the other and on a real Ray of two workers."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

import holobind as hb
from holobind.cli.batch import PredictionJob, batch_files, output_files, predict_files, predict_with_ray
from holobind.errors import DataError, OptionError

TEXTS = ["red apple", "green apple", "red car", "blue car", "green tree", "blue sky"] * 4
LABELS = [["fruit"], ["fruit"], ["vehicle"], ["vehicle"], ["plant"], ["air"]] * 4


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    hb.HolographicClassifier(text=True).fit(TEXTS, LABELS).save(path)
    return path


@pytest.fixture
def folder(tmp_path):
    """Six files of JSON lines."""
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(6):
        rows = [{"id": 100 * i + j, "text": TEXTS[j % len(TEXTS)]} for j in range(20)]
        (folder / f"part-{i}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_parquet_file_has_the_predictions_of_json_lines(model, folder, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    rows = read(folder / "part-0.jsonl")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    job = PredictionJob(model, k=2, id_field="id")
    loaded = job.load_model()
    job.run(loaded, folder / "part-0.jsonl", tmp_path / "out.jsonl")
    job.run(loaded, tmp_path / "in.parquet", tmp_path / "out.parquet")
    wanted, found = read(tmp_path / "out.jsonl"), pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["id"] for row in found] == list(range(20))
    assert [row["labels"] for row in found] == [row["labels"] for row in wanted]


def test_a_row_without_known_words_and_ids_of_labels_are_written_to_parquet(model, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "in.txt").write_text("red apple\nzzzz\n")
    PredictionJob(model, names=False).run(hb.load(model), tmp_path / "in.txt", tmp_path / "out.parquet")
    first, second = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert isinstance(first["labels"][0]["label"], int) and first["unknown"] is None
    assert second["labels"] == [] and second["unknown"] == "no known word"


def test_nothing_is_left_of_a_parquet_file_after_an_error(model, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "in.jsonl").write_text('{"text": "red apple"}\n{"text": 3}\n')
    with pytest.raises(DataError):
        PredictionJob(model).run(hb.load(model), tmp_path / "in.jsonl", tmp_path / "out.parquet")
    assert [file.name for file in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_folder_continues_from_what_is_written(model, folder, tmp_path):
    job, out = PredictionJob(model), tmp_path / "out"
    files = batch_files(folder)
    assert len(list(predict_files(job, output_files(files, out)))) == 6
    wanted = {file.name: file.read_bytes() for file in out.iterdir()}
    (out / "part-2.jsonl").unlink()
    again = list(predict_files(job, output_files(files, out)))
    assert again == [out / "part-2.jsonl"]
    assert {file.name: file.read_bytes() for file in out.iterdir()} == wanted
    with pytest.raises(OptionError, match="folder of the input"):
        output_files(files, folder)
    with pytest.raises(OptionError, match="name of a folder"):
        output_files(files, None)


def descendants(pid):
    """Processes below one, by their numbers, with their command lines."""
    children = {}
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append((int(entry.name), (entry / "cmdline").read_bytes()))
        except (OSError, ValueError, IndexError):
            continue
    found, waiting = {}, [pid]
    while waiting:
        for child, command in children.get(waiting.pop(), ()):
            found[child] = command
            waiting.append(child)
    return found


class SlowJob(PredictionJob):
    """Takes a while for each file, so that a worker can be killed at its work."""

    def run(self, *arguments, **options):
        time.sleep(0.7)
        super().run(*arguments, **options)


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds Ray's workers in /proc")
def test_ray_finishes_all_files_though_a_worker_is_killed(model, folder, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="needs holobind[ray]")
    places = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))  # workers import this test
    out, job = tmp_path / "out", SlowJob(model)
    killed = []

    def kill_one():
        deadline = time.monotonic() + 100
        while not killed and time.monotonic() < deadline:
            time.sleep(0.2)
            if any(out.glob("*.jsonl")):
                workers = [pid for pid, name in descendants(os.getpid()).items() if name.startswith(b"ray::Map")]
                if workers:
                    os.kill(workers[0], signal.SIGKILL)
                    killed.append(workers[0])

    killer = threading.Thread(target=kill_one)
    killer.start()
    done = list(predict_with_ray(job, output_files(batch_files(folder), out), workers=2))
    killer.join()
    assert killed and sorted(file.name for file in done) == [f"part-{i}.jsonl" for i in range(6)]
    loaded = job.load_model()
    for file in batch_files(folder):
        PredictionJob(model).run(loaded, file, tmp_path / "alone.jsonl")
        assert read(out / file.name) == read(tmp_path / "alone.jsonl")
    assert list(predict_with_ray(job, output_files(batch_files(folder), out), workers=2)) == []
