"""The systems by name; each is imported when it is first used."""

from __future__ import annotations

import sys

from ensue.core.table import Entry, Table

NUMBERS = {
    "last": Entry("ensue.models.forecast:LastValue", "forecasts the last value of a series"),
    "seasonal": Entry("ensue.models.forecast:SeasonalValue", "forecasts the last season of a series again"),
    "linear": Entry("ensue.models.forecast:LinearForecaster", "forecasts by one dense layer on a window"),
}
READS = "the system of that name, for numbers"
SYSTEMS = Table(
    "system",
    "ensue.systems",
    {
        "ngram": Entry("ensue.models.ngram:NGram", "n-grams: counts, smoothed by modified Kneser–Ney"),
        "window": Entry("ensue.models.window:WindowLanguageModel", "neural network over a fixed window of words"),
        "rnn": Entry("ensue.models.recurrent:RNNLanguageModel", "plain recurrent network"),
        "gru": Entry("ensue.models.recurrent:GRULanguageModel", "gated recurrent unit, reset after the matmul"),
        "gru-cho": Entry("ensue.models.recurrent:ChoGRULanguageModel", "gated recurrent unit, reset before the matmul"),
        "lstm": Entry("ensue.models.recurrent:LSTMLanguageModel", "long short-term memory"),
        "ulmfit": Entry("ensue.models.ulmfit:ULMFiT", "LSTM language model for fine-tuning, to a text and to a task"),
        "bilm": Entry("ensue.models.bidirectional:BidirectionalLanguageModel", "bidirectional LSTM language model"),
        "elmo": Entry("ensue.models.elmo:ELMo", "contextual word vectors, from two LSTMs over spelled words"),
        "context2vec": Entry("ensue.models.context2vec:Context2vec", "vectors of words and of their contexts"),
        "gpt": Entry("ensue.models.gpt:GPTLanguageModel", "decoder-only Transformer"),
        "llama": Entry(
            "ensue.models.llama:LlamaLanguageModel", "decoder-only Transformer as Llama, Mistral and Qwen have"
        ),
        "transformer-xl": Entry(
            "ensue.models.transformer_xl:TransformerXL", "Transformer with a memory of the segments before"
        ),
        "seq2seq": Entry("ensue.models.seq2seq:Seq2Seq", "recurrent encoder–decoder with attention, for translation"),
        "cove": Entry("ensue.models.cove:CoVe", "LSTM over a translation model's encoder, for tasks that label"),
        "convs2s": Entry("ensue.models.convs2s:ConvS2S", "convolutional encoder–decoder with attention in every layer"),
        "bytenet": Entry("ensue.models.bytenet:ByteNet", "encoder–decoder of dilated convolutions, for translation"),
        "transformer": Entry("ensue.models.transformer:Transformer", "encoder–decoder of attention, for translation"),
        "t5": Entry("ensue.models.t5:T5", "encoder–decoder of attention, for all that is text to text"),
        "bert": Entry("ensue.models.bert:BERT", "encoder trained on masked words and next sentences"),
        "roberta": Entry("ensue.models.bert:RoBERTa", "encoder trained on masked words"),
        "albert": Entry("ensue.models.albert:ALBERT", "encoder of one shared block, trained on masked words and order"),
        "electra": Entry("ensue.models.electra:ELECTRA", "encoder trained to tell which words a generator replaced"),
        "deberta": Entry(
            "ensue.models.deberta:DeBERTa", "encoder that compares words and distances apart, trained on masked words"
        ),
        "word2vec": Entry("ensue.models.word2vec:Word2Vec", "word vectors, from neighbouring words"),
        **NUMBERS,
    },
)
FORECASTERS = Table(
    "forecaster",
    "ensue.forecasters",
    {
        **NUMBERS,
        "rnn": Entry("ensue.models.forecast_networks:RNNForecaster", READS),
        "gru": Entry("ensue.models.forecast_networks:GRUForecaster", READS),
        "gru-cho": Entry("ensue.models.forecast_networks:ChoGRUForecaster", READS),
        "lstm": Entry("ensue.models.forecast_networks:LSTMForecaster", READS),
        "gpt": Entry("ensue.models.forecast_networks:GPTForecaster", READS),
    },
)
"""Systems that forecast: the same names, with numbers instead of tokens."""


def is_ngram(model: object) -> bool:
    """Whether a model is an n-gram model. Their module needs numba, so it is not imported to find out."""
    module = sys.modules.get("ensue.models.ngram")
    return module is not None and isinstance(model, module.NGram)
