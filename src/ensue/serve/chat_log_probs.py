"""Log-probabilities of the tokens of an answer, in the form of ``/v1/chat/completions``.

They are the model's own: before temperature, top-k and top-p. A token may be part of a character. Its bytes say which
part, and the bytes of all tokens together are the text.
"""

from __future__ import annotations

from ensue.data.tokenizers.subword import SubwordTokenizer
from ensue.runs.stream_detokenizer import added_text
from ensue.serve.chat_schemas import Alternative, ChatLogProbs, TokenLogProb
from ensue.serve.completion_choices import ChoiceBuilder

LEAST = -9999.0
"""The least log-probability, as in OpenAI's API: JSON has no minus infinity."""


def chat_log_probs(builder: ChoiceBuilder, start: int = 0) -> ChatLogProbs | None:
    """The tokens of a choice from ``start`` on, without its end token; None if they are not asked for."""
    if builder.top is None:
        return None
    content = []
    for position in range(start, len(builder.drawn)):
        drawn, before = builder.drawn[position], builder.before(position)
        if not drawn.ended:
            best = [_alternative(builder, before, *one) for one in drawn.best]
            own = _alternative(builder, before, drawn.token, drawn.log_prob)
            content.append(TokenLogProb(**dict(own), top_logprobs=best))
    return ChatLogProbs(content=content)


def _alternative(builder: ChoiceBuilder, before: list[int], token: int, log_prob: float) -> Alternative:
    tokenizer = builder.tokenizer
    assert isinstance(tokenizer, SubwordTokenizer)  # others have no chat template
    data = tokenizer.token_bytes(token)
    name = added_text(tokenizer, before, token)
    return Alternative(token=name, logprob=max(LEAST, log_prob), bytes=None if data is None else list(data))
