"""The tokenizers of BERT and RoBERTa, from their files or from a given vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from ensue.core.errors import InputError
from ensue.data.tokenizers.encoder_tokenizer import EncoderTokenizer, bert_template, roberta_template, special_token
from ensue.data.tokenizers.subword import CONTINUATION_PREFIX, bpe_model

BERT_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""In the order of their ids; <mask> is RoBERTa's last token."""

MAX_WORD_CHARS = 100
"""Longer words are unknown."""


def bert_tokenizer(
    vocab: Mapping[str, int], *, lowercase: bool = True, strip_accents: bool | None = None, chinese: bool = True
) -> EncoderTokenizer:
    """Build BERT's WordPiece tokenizer from a vocabulary with BERT's five special tokens.

    ``strip_accents``: None to strip them if text is lowercased; ``chinese``: each Chinese character is a word.
    """
    _check_special_tokens(vocab, BERT_SPECIAL_TOKENS)
    unknown = BERT_SPECIAL_TOKENS[1]
    inner = Tokenizer(models.WordPiece(vocab=dict(vocab), unk_token=unknown, max_input_chars_per_word=MAX_WORD_CHARS))
    inner.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece(prefix=CONTINUATION_PREFIX)
    first, last = ((name, vocab[name]) for name in ("[CLS]", "[SEP]"))
    inner.post_processor = bert_template(first, last)
    inner.add_special_tokens([special_token(name) for name in sorted(BERT_SPECIAL_TOKENS, key=vocab.__getitem__)])
    return EncoderTokenizer(inner)


def bert_from_lines(text: str, config: Mapping[str, Any]) -> EncoderTokenizer:
    """Build BERT's tokenizer from ``vocab.txt``, one token per line, and ``tokenizer_config.json``.

    If the configuration does not say whether case matters, it does if the vocabulary has capital letters.
    """
    names = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    vocab = {name: number for number, name in enumerate(names)}
    lowercase = config.get("do_lower_case")
    if lowercase is None:
        lowercase = not any(name != name.lower() for name in names if not name.startswith("["))
    chinese = config.get("tokenize_chinese_chars")
    options = {"lowercase": bool(lowercase), "chinese": chinese is None or bool(chinese)}
    return bert_tokenizer(vocab, strip_accents=config.get("strip_accents"), **options)


def roberta_tokenizer(model: Any, *, lowercase: bool = False, prefix_space: bool = False) -> EncoderTokenizer:
    """Build RoBERTa's byte-level tokenizer from a BPE or Unigram ``model`` with RoBERTa's five special tokens.

    ``prefix_space``: a text is encoded as if it began with a space.
    """
    inner = Tokenizer(model)
    vocab = inner.get_vocab()
    _check_special_tokens(vocab, ROBERTA_SPECIAL_TOKENS)
    if lowercase:
        inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=True)
    inner.decoder = decoders.ByteLevel()
    first, last = ((name, vocab[name]) for name in ("<s>", "</s>"))
    inner.post_processor = roberta_template(first, last, prefix_space)
    inner.add_special_tokens([special_token(name) for name in sorted(ROBERTA_SPECIAL_TOKENS, key=vocab.__getitem__)])
    return EncoderTokenizer(inner)


def is_roberta(vocab: Mapping[str, int]) -> bool:
    """Return whether a ``vocab.json`` is RoBERTa's: byte-level subwords cannot have these names."""
    return "<s>" in vocab or "<mask>" in vocab


def roberta_from_files(vocab: Mapping[str, int], merges: str, config: Mapping[str, Any]) -> EncoderTokenizer:
    """Build RoBERTa's tokenizer from the contents of ``vocab.json``, ``merges.txt`` and ``tokenizer_config.json``."""
    return roberta_tokenizer(bpe_model(vocab, merges), prefix_space=bool(config.get("add_prefix_space")))


def _check_special_tokens(vocab: Mapping[str, int], special: Iterable[str]) -> None:
    missing = [name for name in special if name not in vocab]
    if missing:
        raise InputError(f"the vocabulary has no {missing[0]}", hint=f"it needs {' '.join(special)}")
