"""The body of a model: what of a system is left without its head, for a head of another task to stand on."""

from __future__ import annotations

from typing import Any

from ensue.core.errors import InputError
from ensue.models.bert import BERT
from ensue.models.bidirectional_encoder import BidirectionalEncoder
from ensue.models.features import Features
from ensue.models.labelled import HeadConfig, Labelled
from ensue.models.recurrent import RecurrentLanguageModel


def body_of(model: Any) -> Any:
    """What of a model can be the body of one that labels: an encoder without its heads, or a whole language model."""
    return model.body if isinstance(model, BERT | Labelled) else model


def body_for(model: Any, head: HeadConfig, features: Features | None = None, onward: bool = False) -> Any:
    """The body that a head's settings ask for: a recurrent network may read from both ends, and features beside.

    ``onward`` says that it is to read from one end, where nothing else is said.
    """
    recurrent = isinstance(model, RecurrentLanguageModel)
    if features is not None and (not recurrent or head.directions == "one"):
        what = "features are read by a recurrent network, from both ends"
        raise InputError(what, hint="use --model lstm, gru or rnn, and leave out head.directions")
    if not recurrent and head.directions == "both":
        raise InputError("head.directions = both is for recurrent networks", hint="leave it out")
    each = head.kind in ("token", "span")
    both = head.directions == "both" or (head.directions == "auto" and (features is not None or (each and not onward)))
    return BidirectionalEncoder(model, features) if both and recurrent else body_of(model)


def system_config(model: Any) -> Any:
    """The settings of the system that a model is of, whatever head it has."""
    return model.body.config if isinstance(model, Labelled) else model.config
