"""Predictions for one input or for folders of files: one after the other, or on the workers of a Ray cluster.

A folder of .parquet or .jsonl files gives a folder with a file of predictions for each, of the same name. Files are
written whole or not at all, and those that exist are not made again: a run that was stopped continues where it was.
With Ray, every worker loads the model once and takes one file at a time; a file whose worker died goes to another one.
"""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holobind.cli.label_options import LabelOptions
from holobind.cli.outputs import open_predictions
from holobind.data.tables import Layout, find_format
from holobind.errors import DataError, HolobindError, OptionError

if TYPE_CHECKING:
    from holobind.model import Model

BATCH_SUFFIXES = (".parquet", ".jsonl")


@dataclass(frozen=True)
class PredictionJob:
    """A model and what to write for each row."""

    model: Path
    k: int = 5
    threshold: float = -math.inf
    names: bool = True
    options: LabelOptions = field(default_factory=LabelOptions)
    format: str | None = None
    text_field: str | None = None
    id_field: str | None = None
    encoder: str | None = None
    max_uncompressed: int | None = None

    def load_model(self) -> "Model":
        import holobind as hb

        return hb.load(self.model, encoder=self.encoder)

    def run(
        self,
        model: "Model",
        source: Path | None,
        out: Path | None,
        *,
        on_layout: Callable[[Layout], None] | None = None,
        on_error: Callable[[DataError], None] | None = None,
    ) -> None:
        """Write the predictions for a file, or standard input (None), to a file, or standard output (None)."""
        from holobind.cli import stream
        from holobind.data.tables import TableOptions

        fields = TableOptions.of(
            format=self.format,
            text_field=self.text_field,
            id_field=self.id_field,
            preferred=model.metadata.get("text fields"),
        )
        with open_predictions(out) as write:
            for batch in stream.predictions(
                model,
                stream.open_input(source, fields, self.max_uncompressed),
                self.k,
                format=self.format,
                fields=fields,
                on_layout=on_layout,
                source=stream.STDIN if source is None else str(source),
                names=self.names,
                threshold=self.threshold,
                options=self.options,
                on_error=on_error,
            ):
                write(batch)


def batch_files(source: Path) -> list[Path]:
    """The files of a folder that is no dataset of its own; none if the input is something else."""
    if not source.is_dir() or find_format(source) is not None:
        return []
    return sorted(file for file in source.iterdir() if file.suffix.lower() in BATCH_SUFFIXES and file.is_file())


def output_files(files: list[Path], out: Path | None) -> dict[Path, Path]:
    """From each input to its output in the folder `out`, without those that are written already."""
    if out is None or (out.exists() and not out.is_dir()):
        raise OptionError("a folder of files needs --out with the name of a folder for the predictions")
    if out.exists() and any(out.samefile(file.parent) for file in files):
        raise OptionError(f"--out {out} is the folder of the input; give another one")
    out.mkdir(parents=True, exist_ok=True)
    return {file: out / file.name for file in files if not (out / file.name).exists()}


def predict_files(job: PredictionJob, files: dict[Path, Path]) -> Iterator[Path]:
    """Write the predictions of all files, one after the other; yield each output."""
    model = job.load_model()
    for source, target in files.items():
        job.run(model, source, target)
        yield target


def predict_with_ray(job: PredictionJob, files: dict[Path, Path], workers: int) -> Iterator[Path]:
    """Write the predictions of all files on workers of Ray; yield outputs as they are done, in any order.

    It uses the cluster that RAY_ADDRESS names, or starts Ray on this machine. All workers must see the files.
    """
    try:
        import ray
    except ImportError as error:
        raise OptionError("--ray needs Ray; install it: pip install 'holobind[ray]'") from error
    if not files:
        return
    started = not ray.is_initialized()
    logging.getLogger("ray.data").setLevel(logging.WARNING)  # its plans are no progress of ours
    if started:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.WARNING)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        items = [{"source": str(source.resolve()), "target": str(target.resolve())} for source, target in files.items()]
        written = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            _Worker,
            fn_constructor_args=(job,),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(workers, len(items))),
            num_cpus=1,
        )
        for row in written.iter_rows():
            if row["error"]:
                raise DataError(row["error"])
            yield Path(row["target"])
    finally:
        if started:
            ray.shutdown()


class _Worker:
    """What an actor of Ray does: it has one model, and predicts file after file."""

    def __init__(self, job: PredictionJob) -> None:
        self.job, self.model = job, job.load_model()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        errors = []
        for source, target in zip(batch["source"], batch["target"], strict=True):
            try:
                if not Path(target).exists():  # a file that a dead worker had finished
                    self.job.run(self.model, Path(source), Path(target))
                errors.append("")
            except HolobindError as error:  # the user's mistake: no reason to try again
                errors.append(str(error))
        return {"target": batch["target"], "error": errors}
