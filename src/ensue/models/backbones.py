"""The body of a model: a system without its head, for the head of another task."""

from __future__ import annotations

from typing import Any

from ensue.core.errors import InputError
from ensue.models.bert import BERT
from ensue.models.bidirectional_encoder import BidirectionalEncoder
from ensue.models.features import Features
from ensue.models.labelled import HeadConfig, Labelled
from ensue.models.recurrent import RecurrentLanguageModel


def body_of(model: Any) -> Any:
    """Return the body of a model: an encoder without its heads, or a whole language model."""
    return model.body if isinstance(model, BERT | Labelled) else model


def build_body(model: Any, head: HeadConfig, features: Features | None = None, one_way: bool = False) -> Any:
    """Return the body for a head; a recurrent network may read in both directions, and features besides.

    ``one_way``: where the head's settings do not say, it reads in one direction.
    """
    recurrent = isinstance(model, RecurrentLanguageModel)
    if features is not None and (not recurrent or head.directions == "one"):
        what = "features are read by a recurrent network, from both ends"
        raise InputError(what, hint="use --model lstm, gru or rnn, and leave out head.directions")
    if not recurrent and head.directions == "both":
        raise InputError("head.directions = both is for recurrent networks", hint="leave it out")
    each = head.kind in ("token", "span")
    both = head.directions == "both" or (head.directions == "auto" and (features is not None or (each and not one_way)))
    return BidirectionalEncoder(model, features) if both and recurrent else body_of(model)


def system_config(model: Any) -> Any:
    """Return the settings of a model's system, whatever head it has."""
    return model.body.config if isinstance(model, Labelled) else model.config
