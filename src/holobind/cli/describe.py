"""A model in words and numbers, for `holobind train` and `holobind inspect`."""

from collections.abc import Callable
from typing import Any, TypeVar

from rich.table import Table

from holobind._checks import printable
from holobind.model import Model
from holobind.ridge_knn.ridge import MAX_L2_STEPS, MIN_TOLERANCE

N_FREQUENT_LABELS = 5
PERFECT = 99.995  # percent: a score that is shown as 100
MIN_NEAR_DUPLICATES = 0.1  # the fraction of rows from which `train` speaks of near-duplicates
MAX_CELL_CHARACTERS = 400  # of a value in the table
# The errors of metadata of other types than holobind writes: a model file may hold any JSON.
METADATA_ERRORS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
Result = TypeVar("Result")


def description(model: Model) -> dict[str, Any]:
    """What a model is, what it was trained on and how large it is, as JSON values."""
    no_results: dict[str, float] = {}
    no_notes: list[str] = []
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
        "label text": None
        if model.label_text is None
        else {"texts": model.label_text.n_texts, **model.label_text.weights.as_json()},
        "labels without rows": int((model.frequencies.counts == 0).sum()),
        "calibrated": model.calibration is not None,
        "training rows": model.frequencies.n_rows,
        **model.sizes(),
        "validation": _tolerant(lambda: validation(model.metadata), no_results),
        "notes": _tolerant(lambda: notes(model.metadata), no_notes),
        "metadata": model.metadata,
    }


def table(described: dict[str, Any]) -> Table:
    """A table of a `description` to which the "path" and "bytes" of the model's file were added."""
    metadata = described["metadata"]
    n_linear = described["linear output layer"]
    fewer_outputs, fewer_parameters = described["output layer smaller by"], described["network smaller by"]
    rows = {
        "model": described["summary"],
        "inputs": _inputs(described),
        "labels": f"{described['labels']:,}, most frequent: {', '.join(map(str, described['most frequent labels']))}",
        "allowed labels": None
        if described["allowed labels"] == described["labels"]
        else f"{described['allowed labels']:,}, set by holobind restrict",
        "label text": _label_text(described),
        "probabilities": "calibrated on held-out rows" if described["calibrated"] else "none",
        "parameters": f"{described['parameters']:,}, {relative_count(fewer_parameters)} with a linear output layer",
        "output layer": f"{described['output layer']:,} parameters, {relative_count(fewer_outputs)} in a linear output "
        f"layer ({n_linear:,})",
        "training data": f"{metadata.get('data') or 'unnamed'}, {described['training rows']:,} rows",
        "seed": _tolerant(lambda: metadata["config"]["seed"], None),
        "validation": _tolerant(lambda: validation_text(metadata), ""),
        "test": _tolerant(lambda: metric_summary(metadata.get("test") or {}), ""),
        "written by": f"holobind {metadata['holobind']}" if "holobind" in metadata else None,
    }
    shown = Table(
        show_header=False, title=_cell(f"{described['path']}, {file_size(described['bytes'])}"), title_justify="left"
    )
    for name, value in rows.items():
        if value not in (None, ""):
            shown.add_row(name, _cell(value))
    for note in described.get("notes", ()):
        shown.add_row("note", _cell(note))
    return shown


def _label_text(described: dict[str, Any]) -> str | None:
    """What the label texts of a model are and how much they count, in one line of text."""
    texts = described["label text"]
    if texts is None:
        return None
    embeddings = f", embeddings {texts['embedding_weight']:g}" if texts["embedding_weight"] else ""
    return (
        f"{texts['texts']:,} texts; weight {texts['weight']:g}, half of it at {texts['half_rows']:g} rows{embeddings}; "
        f"{described['labels without rows']:,} labels without rows, at most {texts['zero_labels']} of them in a row"
    )


def _inputs(described: dict[str, Any]) -> str:
    """What a model reads, in one line of text."""
    if not described["vocabulary"]:
        return _features(described)
    tokens = f"{described['vocabulary']:,} tokens"
    return f"{_features(described)}, and {tokens}" if described["features"] else f"texts, {tokens}"


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
    extra = "" if model.extra_scores is None else f" with {model.extra_scores.describe()}"
    return f"{model.network.describe()}{extra}, {model.head.describe()}, {training}"


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
    estimated = metadata.get("held_out")
    best = estimated["ndcg"] if isinstance(estimated, dict) else max(scores, default=None)
    return {**({} if best is None else {"nDCG@5": round(best, 2)}), **chosen}


def validation_text(metadata: dict[str, Any]) -> str:
    """The results on held-out rows in one line of text; a score of the closed form has its interval of 95 %."""
    found, held_out = validation(metadata), metadata.get("held_out")
    parts = [f"{name} {value}" for name, value in found.items()]
    if isinstance(held_out, dict) and "training" not in metadata:
        on = f"{held_out['rows']:,} held-out rows"
        if held_out["groups"] is not None:
            on += f" of {held_out['groups']:,} groups"
        interval = f"{held_out['low']:.1f} to {held_out['high']:.1f} on {on}"
        parts = [f"nDCG@5 {held_out['ndcg']:.2f} ({interval})", *parts[1:]]
    return ", ".join(parts)


def notes(metadata: dict[str, Any]) -> list[str]:
    """What a user should know of the fit, in sentences: what did not converge or was cut short, and near-duplicates."""
    found = []
    ridge, training, held_out = (metadata.get(name) for name in ("ridge", "training", "held_out"))
    if isinstance(ridge, dict):
        found += _ridge_notes(ridge)
    text = metadata.get("text")
    if isinstance(text, dict) and "streamed" in text:
        found.append(str(text["streamed"])[:200])
    if isinstance(left_out := metadata.get("memory notes"), list):
        found += [f"with this --memory, {str(note)[:200]}" for note in left_out[:3]]
    if isinstance(training, dict) and training["history"]:
        found += _training_notes(training)
    if isinstance(held_out, dict) and (held_out.get("near_duplicates") or 0) >= MIN_NEAR_DUPLICATES:
        share = f"{held_out['near_duplicates']:.0%}".replace("%", " %")
        if held_out["groups"] is None:
            found.append(
                f"{share} of rows have a near-duplicate: on new data that has none, scores will be lower than the "
                "estimate, and other settings may be better; pass groups (--group-field), so that families "
                "of rows are held out as one"
            )
        else:
            found.append(f"{share} of rows have a near-duplicate in another group: larger groups may be needed")
    return found


def _ridge_notes(ridge: dict[str, Any]) -> list[str]:
    found = []
    residual, tolerance, tried = ridge["residual"], ridge["tolerance"], ridge["validation"]
    if not ridge["converged"]:
        found.append(
            f"the ridge regression did not converge: after {ridge['iterations']} iterations its relative residual is "
            f"{residual:.2g}, and {tolerance:.2g} was wanted; a larger l2 converges sooner"
        )
    elif "conjugate gradients" in ridge["system"] and tolerance <= MIN_TOLERANCE * (1 + 1e-6):
        found.append(
            f"the ridge regression was solved to the smallest relative residual that is tried, {tolerance:.2g}: "
            "held-out rows gained by every step to it"
        )
    if len(tried) > MAX_L2_STEPS:
        best = max(range(len(tried)), key=lambda i: tried[i][1])
        if best in (0, len(tried) - 1) and tried[best][1] < PERFECT:
            found.append(f"l2 {ridge['l2']:.3g} is at the end of the search; a further one may be better: give --l2")
    return found


def _training_notes(training: dict[str, Any]) -> list[str]:
    config, n_epochs, best = training["config"], len(training["history"]), training["best epoch"]
    if n_epochs < config["epochs"] and 0 < config["patience"] <= n_epochs - best:
        return [f"training ended after epoch {n_epochs} of {config['epochs']}: no gain since epoch {best}"]
    if n_epochs < config["epochs"] and config["time_limit"] is not None:
        return [f"training was cut short by the time limit in epoch {n_epochs} of {config['epochs']}"]
    if best == n_epochs and config["metric"] in training["history"][0]:
        return [f"the last epoch, {n_epochs}, was the best: more epochs may give a better model"]
    return []


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
