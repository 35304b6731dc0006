"""Sequence models, one file a system. Public names are imported when first used."""

# ruff: noqa: I001 (names of one module stay on one line)
from __future__ import annotations

from typing import TYPE_CHECKING

from ensue.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ensue.models.albert import ALBERT as ALBERT, ALBERTConfig as ALBERTConfig
    from ensue.models.bert import BERT as BERT, BERTConfig as BERTConfig, RoBERTa as RoBERTa
    from ensue.models.bert import RoBERTaConfig as RoBERTaConfig
    from ensue.models.bidirectional import BidirectionalLanguageModel as BidirectionalLanguageModel
    from ensue.models.bytenet import ByteNet as ByteNet, ByteNetConfig as ByteNetConfig
    from ensue.models.conditional import ConditionalModel as ConditionalModel
    from ensue.models.context import ContextModel as ContextModel
    from ensue.models.context2vec import Context2vec as Context2vec, Context2vecConfig as Context2vecConfig
    from ensue.models.convs2s import ConvS2S as ConvS2S, ConvS2SConfig as ConvS2SConfig
    from ensue.models.cove import CoVe as CoVe
    from ensue.models.deberta import DeBERTa as DeBERTa, DeBERTaConfig as DeBERTaConfig
    from ensue.models.electra import ELECTRA as ELECTRA, ELECTRAConfig as ELECTRAConfig
    from ensue.models.elmo import ELMo as ELMo, ELMoConfig as ELMoConfig
    from ensue.models.forecast import Forecaster as Forecaster, LastValue as LastValue
    from ensue.models.forecast import LinearForecaster as LinearForecaster, SeasonalValue as SeasonalValue
    from ensue.models.forecast_networks import ChoGRUForecaster as ChoGRUForecaster, GPTForecaster as GPTForecaster
    from ensue.models.forecast_networks import GRUForecaster as GRUForecaster, LSTMForecaster as LSTMForecaster
    from ensue.models.forecast_networks import RNNForecaster as RNNForecaster
    from ensue.models.gpt import GPTConfig as GPTConfig, GPTLanguageModel as GPTLanguageModel
    from ensue.models.labelled import HeadConfig as HeadConfig, Labelled as Labelled
    from ensue.models.language import LanguageModel as LanguageModel
    from ensue.models.laws import Finding as Finding
    from ensue.models.model import Model as Model
    from ensue.models.ngram import NGram as NGram, NGramConfig as NGramConfig, NGramCounter as NGramCounter
    from ensue.models.recurrent import ChoGRULanguageModel as ChoGRULanguageModel, GRULanguageModel as GRULanguageModel
    from ensue.models.recurrent import LSTMConfig as LSTMConfig, LSTMLanguageModel as LSTMLanguageModel
    from ensue.models.recurrent import RNNConfig as RNNConfig, RNNLanguageModel as RNNLanguageModel
    from ensue.models.recurrent import RecurrentConfig as RecurrentConfig
    from ensue.models.recurrent import RecurrentLanguageModel as RecurrentLanguageModel
    from ensue.models.seq2seq import Seq2Seq as Seq2Seq, Seq2SeqConfig as Seq2SeqConfig
    from ensue.models.t5 import T5 as T5, T5Config as T5Config
    from ensue.models.table import FORECASTERS as FORECASTERS, SYSTEMS as SYSTEMS
    from ensue.models.transformer import Transformer as Transformer, TransformerConfig as TransformerConfig
    from ensue.models.transformer_xl import TransformerXL as TransformerXL, TransformerXLConfig as TransformerXLConfig
    from ensue.models.ulmfit import ULMFiT as ULMFiT, ULMFiTConfig as ULMFiTConfig
    from ensue.models.window import WindowConfig as WindowConfig, WindowLanguageModel as WindowLanguageModel
    from ensue.models.word2vec import Word2Vec as Word2Vec, Word2VecConfig as Word2VecConfig

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
