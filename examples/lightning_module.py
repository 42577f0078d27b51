"""A LightningModule with a holographic head: class indices, validation by perplexity, top-k prediction.

    python examples/lightning_module.py [--small]

Needs `lightning`. Data: rows of Gaussian clusters, one for each class, so that the file runs anywhere.
"""

import argparse
import json
import math
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import holobind as hb

FEATURES = 64


class Classifier(lightning.LightningModule):
    """A body and a head. The head is a submodule like any other: checkpoints, devices and precision need no care."""

    def __init__(self, n_labels: int, dim: int, hidden: int) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Sequential(nn.Linear(FEATURES, hidden), nn.ReLU())
        self.head = hb.HolographicHead(hidden, n_labels, dim, prior=torch.zeros(n_labels))

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        x, y = batch
        return self.head.loss(self.body(x), y)

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        x, y = batch
        h = self.body(x)
        # In eval mode the loss is the plain cross-entropy, so exp(loss) is the perplexity.
        self.log_dict({"loss": self.head.loss(h, y), "accuracy": (self.head.predict(h) == y).float().mean()})

    def predict_step(self, batch: tuple[Tensor, Tensor], _: int) -> tuple[Tensor, Tensor]:
        return self.head.top_k(self.body(batch[0]), 5)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-3)


def clusters(n_labels: int, rows: int, seed: int) -> TensorDataset:
    centres = torch.randn(n_labels, FEATURES, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(n_labels, (rows,), generator=generator)
    return TensorDataset(centres[y] + 0.3 * torch.randn(rows, FEATURES, generator=generator), y)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args(arguments).small
    n_labels, dim, hidden, rows, epochs = (200, 64, 128, 2000, 3) if small else (20_000, 512, 2048, 200_000, 5)
    lightning.seed_everything(0, verbose=False)
    model = Classifier(n_labels, dim, hidden)
    train, test = clusters(n_labels, rows, 1), clusters(n_labels, rows // 10, 2)
    counts = train.tensors[1].bincount(minlength=n_labels)
    model.head.set_prior(counts)
    trainer = lightning.Trainer(
        max_epochs=epochs, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu"
    )
    trainer.fit(model, DataLoader(train, batch_size=64, shuffle=True))
    found = trainer.validate(model, DataLoader(test, batch_size=256), verbose=False)[0]
    return {"labels": n_labels, "accuracy": found["accuracy"], "perplexity": math.exp(found["loss"])}


if __name__ == "__main__":
    print(json.dumps(main()))
