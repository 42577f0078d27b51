"""A model in words and numbers, for `holobind train` and `holobind inspect`."""

from collections.abc import Callable
from typing import Any, TypeVar

from rich.table import Table

from holobind._checks import printable
from holobind.model import Model

N_FREQUENT_LABELS = 5
MAX_CELL_CHARACTERS = 400  # of a value in the table
# The errors of metadata of other types than holobind writes: a model file may hold any JSON.
METADATA_ERRORS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
Result = TypeVar("Result")


def description(model: Model) -> dict[str, Any]:
    """What a model is, what it was trained on and how large it is, as JSON values."""
    no_results: dict[str, float] = {}
    frequent = model.frequencies.counts.argsort(kind="stable")[::-1][:N_FREQUENT_LABELS].tolist()
    return {
        "summary": summary(model),
        "inputs": "texts" if model.reads_texts else "features",
        "features": model.network.n_features,
        "analyzer": model.tfidf and model.tfidf.analyzer,
        "encoder": model.encoder and model.encoder.config(),
        "vocabulary": model.tokenizer and model.tokenizer.vocab_size,
        "labels": model.n_labels,
        "most frequent labels": frequent if model.label_names is None else [model.label_names[i] for i in frequent],
        "allowed labels": model.n_labels if model.allowed is None else int(model.allowed.sum()),
        "calibrated": model.calibration is not None,
        "training rows": model.frequencies.n_rows,
        **model.sizes(),
        "validation": _tolerant(lambda: validation(model.metadata), no_results),
        "metadata": model.metadata,
    }


def table(described: dict[str, Any]) -> Table:
    """A table of a `description` to which the "path" and "bytes" of the model's file were added."""
    metadata = described["metadata"]
    n_inputs = described["features"] or described["vocabulary"] or 0
    n_linear = described["linear output layer"]
    fewer_outputs, fewer_parameters = described["output layer smaller by"], described["network smaller by"]
    rows = {
        "model": described["summary"],
        "inputs": f"texts, {n_inputs:,} tokens" if described["vocabulary"] else _features(described),
        "labels": f"{described['labels']:,}, most frequent: {', '.join(map(str, described['most frequent labels']))}",
        "allowed labels": None
        if described["allowed labels"] == described["labels"]
        else f"{described['allowed labels']:,}, set by holobind restrict",
        "probabilities": "calibrated on held-out rows" if described["calibrated"] else "none",
        "parameters": f"{described['parameters']:,}, {relative_count(fewer_parameters)} with a linear output layer",
        "output layer": f"{described['output layer']:,} parameters, {relative_count(fewer_outputs)} in a linear output "
        f"layer ({n_linear:,})",
        "training data": f"{metadata.get('data') or 'unnamed'}, {described['training rows']:,} rows",
        "seed": _tolerant(lambda: metadata["config"]["seed"], None),
        "validation": ", ".join(f"{name} {value}" for name, value in described["validation"].items()),
        "test": _tolerant(lambda: metric_summary(metadata.get("test") or {}), ""),
        "written by": f"holobind {metadata['holobind']}" if "holobind" in metadata else None,
    }
    shown = Table(
        show_header=False, title=_cell(f"{described['path']}, {file_size(described['bytes'])}"), title_justify="left"
    )
    for name, value in rows.items():
        if value not in (None, ""):
            shown.add_row(name, _cell(value))
    return shown


def _features(described: dict[str, Any]) -> str:
    """Where the features of a model come from, in one line of text."""
    n, encoder = described["features"] or 0, described["encoder"]
    if described["inputs"] != "texts":
        return f"{n:,} features"
    kinds = {"word": "words, prefixes and n-grams", "char": "character n-grams", "plain": "words"}
    features = kinds.get(described["analyzer"], "features of scikit-learn's vectoriser")
    if encoder is None:
        return f"texts, {n:,} {features}"
    return (
        f"texts, {n - encoder['dim']:,} {features}, and {encoder['dim']} dimensions of the encoder {encoder['name']} "
        f"(hash {encoder['digest'][:12]}, weight {encoder['weight']:g})"
    )


def _cell(value: object) -> str:
    """A value as printable text of bounded length: a terminal would obey control characters in it."""
    return printable(str(value), MAX_CELL_CHARACTERS)


def _tolerant(read: Callable[[], Result], otherwise: Result) -> Result:
    """What `read` finds in metadata, or `otherwise` if they are not as holobind writes them."""
    try:
        return read()
    except METADATA_ERRORS:
        return otherwise


def summary(model: Model) -> str:
    """Network, head and training in one line of text."""
    closed_form = "ridge" in model.metadata and "training" not in model.metadata
    training = "closed form" if closed_form else f"{model.head.loss_name} loss"
    return f"{model.network.describe()}, {model.head.describe()}, {training}"


def validation(metadata: dict[str, Any]) -> dict[str, float]:
    """Results on held-out rows: the best epoch of a trained model, or the chosen options of a closed form."""
    training, ridge, knn = (metadata.get(name) for name in ("training", "ridge", "knn"))
    if isinstance(training, dict) and training["history"]:
        metric = training["config"]["metric"]
        held_out = metric in training["history"][0]
        return {**({metric: round(training["best"], 2)} if held_out else {}), "epoch": training["best epoch"]}
    if not ridge:
        return {}
    scores = [score for _, score in ridge["validation"]]
    chosen = {"l2": float(f"{ridge['l2']:.4g}")}
    if isinstance(knn, dict):  # chosen after l2, so its scores are those of the final model
        chosen["knn_weight"] = knn["knn_weight"]
        scores = [score for *_, score in knn["validation"]] or scores
    if isinstance(encoder := metadata.get("encoder"), dict):
        chosen["encoder_weight"] = encoder["weight"]
    return {**({"nDCG@5": round(max(scores), 2)} if scores else {}), **chosen}


def metric_summary(evaluation: dict[str, Any]) -> str:
    """P and PSP at 1, 3 and 5, and the micro-F1, of an evaluation as JSON values, in one line of text."""
    wanted = [(name, k) for name in ("P", "PSP") for k in (1, 3, 5) if k <= len(evaluation.get(name, ()))]
    shown = [f"{name}@{k} {evaluation[name][k - 1]:.2f}" for name, k in wanted]
    if "micro-F1" in evaluation.get("sets", {}):
        shown.append(f"micro-F1 {evaluation['sets']['micro-F1']:.2f}")
    return "  ".join(shown)


def file_size(n_bytes: int) -> str:
    """
    >>> file_size(4_300_000)
    '4.3 MB'
    """
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:,.1f} kB"


def relative_count(smaller_by: float) -> str:
    """A count relative to another one, which follows in the sentence; `smaller_by` is 1 - count / other.

    >>> relative_count(0.4861), relative_count(-0.123), relative_count(0.0001)
    ('48.6% fewer than', '12.3% more than', 'as many as')
    """
    percent = f"{abs(smaller_by):.1%}"
    if percent == "0.0%":
        return "as many as"
    return f"{percent} {'fewer' if smaller_by > 0 else 'more'} than"
