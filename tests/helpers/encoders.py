"""A small sentence encoder with random weights, in the files of sentence-transformers."""

import json

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = ["red", "green", "apple", "pear", "fish", "old", "tree", "car", "fast", "##s"]
DIM = 12


def write_encoder(folder, seed=0, pooling="mean", words=WORDS):
    """Write config.json, tokenizer.json, model.safetensors and the pooling."""
    transformers = pytest.importorskip("transformers")
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=DIM, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=128, hidden_dropout_prob=0.5,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        transformers.BertModel(config).save_pretrained(folder)
    modes = {f"pooling_mode_{name}": name.startswith(pooling) for name in ("mean_tokens", "cls_token", "max_tokens")}
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": DIM, **modes}))
    return folder
