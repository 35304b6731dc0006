"""CoVe: words in context as a translation model's encoder sees them (McCann et al., 2017).

    c_k = h_k of encoder(x_1 … x_S)         trained to translate, and left as it is
    x̃_k = [E x_k; γ c_k]                    a word's own vector beside it
    h_k = [→h_k; ←h_k]                      an LSTM over both, in both directions
    p(y_k | x) = softmax(W h_k)             tag; the other tasks pool h first, as ensue.models.labelled has it

Whoever translates must know what a word means where it stands, so the states of the encoder tell a word's uses apart.
The encoder is that of any seq2seq or transformer run, with its source tokenizer; a word's first part answers for it.

    ensue fit seq2seq train.en train.de --out runs/en-de
    ensue fit tag train.conll --from runs/en-de --out runs/tags

The paper puts a biattentive classifier on top and takes E from GloVe; here it is what every classifier and tagger has.

Legend: S source tokens, V vocabulary.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ensue.models.recurrent import LSTMLanguageModel


class CoVe(LSTMLanguageModel):
    """The cells and the embedding of an LSTM over [E x_k; γ c_k]; ensue.models.reader has the body that they make."""

    task = "classify"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {"dropout": 0.3}}
    expect: ClassVar[dict[str, str]] = {}
