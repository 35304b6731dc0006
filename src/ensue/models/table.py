"""Every system by name. Nothing is imported until it is asked for, so the list costs nothing."""

from __future__ import annotations

from ensue.core.table import Entry, Table

NUMBERS = {
    "last": Entry("ensue.models.forecast:LastValue", "forecasts the last value of a series"),
    "seasonal": Entry("ensue.models.forecast:SeasonalValue", "forecasts the last season of a series again"),
    "linear": Entry("ensue.models.forecast:LinearForecaster", "forecasts by one dense layer on a window"),
}
READS = "the system of that name, reading numbers"
SYSTEMS = Table(
    "system",
    "ensue.systems",
    {
        "ngram": Entry("ensue.models.ngram:NGram", "n-grams: counts, smoothed by modified Kneser–Ney"),
        "window": Entry("ensue.models.window:WindowLanguageModel", "a neural network over a fixed window of words"),
        "rnn": Entry("ensue.models.recurrent:RNNLanguageModel", "the plain recurrent network"),
        "gru": Entry("ensue.models.recurrent:GRULanguageModel", "gated recurrent unit, reset after the product"),
        "gru-cho": Entry(
            "ensue.models.recurrent:ChoGRULanguageModel", "gated recurrent unit, reset before the product"
        ),
        "lstm": Entry("ensue.models.recurrent:LSTMLanguageModel", "long short-term memory"),
        "ulmfit": Entry(
            "ensue.models.ulmfit:ULMFiT", "an LSTM language model made to be fine-tuned, to a text and to a task"
        ),
        "bilm": Entry(
            "ensue.models.bidirectional:BidirectionalLanguageModel",
            "two LSTMs that meet at the word they guess",
        ),
        "elmo": Entry("ensue.models.elmo:ELMo", "words in context, from two LSTMs over words that are spelt"),
        "context2vec": Entry(
            "ensue.models.context2vec:Context2vec", "the context of a word, near the words that fit into it"
        ),
        "gpt": Entry("ensue.models.gpt:GPTLanguageModel", "decoder-only Transformer"),
        "seq2seq": Entry("ensue.models.seq2seq:Seq2Seq", "recurrent encoder–decoder with attention, for translation"),
        "cove": Entry("ensue.models.cove:CoVe", "LSTM over a translation model's encoder, for tasks that label"),
        "convs2s": Entry("ensue.models.convs2s:ConvS2S", "convolutional encoder–decoder with attention in every layer"),
        "bytenet": Entry(
            "ensue.models.bytenet:ByteNet", "dilated convolutions unfolded over the source, for translation"
        ),
        "transformer": Entry("ensue.models.transformer:Transformer", "encoder–decoder of attention, for translation"),
        "bert": Entry("ensue.models.bert:BERT", "encoder that fills in hidden words and tells which sentence follows"),
        "roberta": Entry("ensue.models.bert:RoBERTa", "encoder that fills in hidden words"),
        "word2vec": Entry("ensue.models.word2vec:Word2Vec", "a vector for each word, from the words it stands near"),
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
"""Systems that forecast: the same names, with numbers in place of tokens."""
