"""A small tokenizer as a model has it: words, single bytes of all others, and special tokens."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = (
    "the quick brown fox jumps over the lazy dog. ",
    "a token for every step, and a step for each\n",
) * 50


def make_tokenizer(path: Path) -> Tokenizer:
    """Write it to a file as well."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.save(str(path))
    return tokenizer
