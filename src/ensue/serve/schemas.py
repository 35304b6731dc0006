"""Schemas of requests and responses, with limits: those of OpenAI's API and our own."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticKnownError

from ensue.search.sampling import Sampling

Text = Annotated[str, Field(max_length=100_000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Tokens = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, max_length=100_000, fail_fast=True)]
Stop = Annotated[str, Field(min_length=1, max_length=100)]
Step = Annotated[list[float], Field(min_length=1, max_length=64, fail_fast=True)]
Steps = Annotated[list[Step], Field(min_length=1, max_length=10_000, fail_fast=True)]
"""Rows of numbers. Long lists fail at their first wrong item: an error for each would hold up the event loop."""
MAX_BIASES = 300
"""Entries of ``logit_bias``."""


def _few_biases(given: Any) -> Any:
    """Refuse a long dictionary before its entries are checked; pydantic would check them all first."""
    if isinstance(given, dict) and len(given) > MAX_BIASES:
        sizes = {"field_type": "Dictionary", "max_length": MAX_BIASES, "actual_length": len(given)}
        raise PydanticKnownError("too_long", sizes)
    return given


Biases = Annotated[dict[str, float], Field(max_length=MAX_BIASES), BeforeValidator(_few_biases)]


class RequestSchema(BaseModel):
    """Base of all requests: unknown fields are ignored, types are strict ("1" and true are not numbers)."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _integers(cls, sent: Any) -> Any:
        """Accept 1.0 as an integer, as JSON Schema does."""
        if not isinstance(sent, dict):
            return sent
        return {name: int(x) if isinstance(x, float) and x.is_integer() else x for name, x in sent.items()}


class ModelRequest(RequestSchema):
    """Base of requests to one model."""

    model: Name


class ModelResponse(BaseModel):
    """Base of our own responses: the name of the model, and notes for users, e.g. that a text was cut."""

    model: str
    notes: list[str] = []


class StreamOptions(RequestSchema):
    """Options of a stream."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    """Every piece of a chat answer has the usage so far (vLLM's option): a client that stops early knows it too."""


class SamplingRequest(ModelRequest):
    """What requests for text have in common; null means the default."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] | None = 0
    n: Annotated[int, Field(ge=1, le=16)] | None = 1
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=4)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: Biases | None = None
    """The last three are OpenAI's; they are rejected if they would have an effect."""

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Maximum number of tokens of each choice."""

    @property
    def choices(self) -> int:
        """Number of choices for each prompt."""
        return 1 if self.n is None else self.n

    @property
    def stops(self) -> list[str]:
        """Texts that end a choice."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())

    @property
    def usage_too(self) -> bool:
        """True if a stream should end with its usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def sampling(self, number: int, seed: int) -> Sampling:
        """Sampling options of one choice."""
        return Sampling(
            tokens=max(1, self.tokens),  # with 0 no row is decoded
            temperature=1.0 if self.temperature is None else self.temperature,
            top_k=self.top_k or 0,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=(seed + number) % 2**63,
        )


class CompletionRequest(SamplingRequest):
    """Request of ``/v1/completions``."""

    prompt: (
        Text
        | Annotated[list[Text], Field(min_length=1, max_length=16)]
        | Tokens
        | Annotated[list[Tokens], Field(min_length=1, max_length=16, fail_fast=True)]
        | None
    ) = ""
    max_tokens: Annotated[int, Field(ge=0, le=4096)] | None = 16
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = False
    suffix: Text | None = None
    best_of: Annotated[int, Field(ge=1, le=16)] | None = None
    """The last two are OpenAI's; they are rejected if they would have an effect."""

    @property
    def unsupported(self) -> str:
        """The first option that is set but not supported, or an empty string."""
        best = self.best_of is not None and self.best_of > self.choices
        names = ("suffix", "frequency_penalty", "presence_penalty", "logit_bias")
        return next((name for name in names if getattr(self, name)), "best_of" if best else "")

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts, each as text or as token ids."""
        prompt: Any = self.prompt or ""
        return [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else prompt

    @property
    def tokens(self) -> int:
        """Maximum number of tokens of each choice."""
        return 16 if self.max_tokens is None else self.max_tokens


class LogProbs(BaseModel):
    """For each token: its text, its log P, the most likely alternatives, and where its text begins."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class Choice(BaseModel):
    """One completion of a prompt."""

    text: str
    index: int
    logprobs: LogProbs | None = None
    finish_reason: Literal["stop", "length"] | None = None


class Usage(BaseModel):
    """Numbers of tokens."""

    prompt_tokens: int
    completion_tokens: int = 0
    total_tokens: int


class Completion(BaseModel):
    """Response of ``/v1/completions``, whole or as one piece of a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage | None = None


class EmbeddingRequest(ModelRequest):
    """Request of ``/v1/embeddings``."""

    input: Text | Annotated[list[Text], Field(min_length=1, max_length=256)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Must equal the model's number of dimensions, if given."""


class Embedding(BaseModel):
    """A vector: numbers, or float32 bytes in base64."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Embeddings(BaseModel):
    """Response of ``/v1/embeddings``."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class Score(BaseModel):
    """A formatted score."""

    name: str
    value: str


class SeriesInfo(BaseModel):
    """A forecaster: it reads ``window`` steps of all columns and forecasts the first ``targets`` of them."""

    names: list[str]
    targets: int
    window: int
    horizon: int
    low: float
    high: float
    """Range of most training values of the first column."""


class ModelCard(BaseModel):
    """A served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "ensue"
    system: str
    task: str
    parameters: int | None = None
    can: list[str]
    """See ``ensue.serve.capabilities``."""
    figures: list[Score] = []
    """Scores on held-out data."""
    series: SeriesInfo | None = None
    context: int | None = None
    """The number of tokens that a language model sees at once; null if there is no limit."""


class ModelList(BaseModel):
    """Response of ``/v1/models``."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class RunList(BaseModel):
    """Response of ``/api/runs``: the runs, and the races whose folders were given."""

    runs: list[ModelCard]
    races: list[str]


class NextRequest(ModelRequest):
    """Request of ``/api/next``."""

    text: Annotated[str, Field(max_length=20_000)] = ""
    top: Annotated[int, Field(ge=1, le=100)] = 10


class NextToken(BaseModel):
    """A token and its probability."""

    token: str
    text: str | None
    """The text that it adds; null for a special token."""
    probability: float


class NextTokens(ModelResponse):
    """Response of ``/api/next``."""

    next: list[NextToken]


class TranslateRequest(ModelRequest):
    """Request of ``/api/translate``."""

    lines: Annotated[list[Annotated[str, Field(max_length=5_000)]], Field(min_length=1, max_length=64)]
    beam: Annotated[int, Field(ge=1, le=16)] = 5
    length: Literal["none", "mean", "gnmt"] = "mean"
    alpha: Annotated[float, Field(ge=0, le=10)] = 0.6
    coverage: Annotated[float, Field(ge=0, le=10)] = 0.0
    nbest: Annotated[int, Field(ge=1, le=16)] = 1
    prefix: Annotated[str, Field(max_length=1_000)] = ""
    trace: bool = False
    """For a single line only."""


class Translation(BaseModel):
    """A line and its translation."""

    source: str
    text: str
    log_prob: float
    nbest: list[dict[str, Any]]


class Translations(ModelResponse):
    """Response of ``/api/translate``."""

    translations: list[Translation]
    trace: dict[str, Any] | None = None


class PredictRequest(ModelRequest):
    """Request of ``/api/predict``."""

    texts: Annotated[list[Text], Field(min_length=1, max_length=256)]


class Predictions(ModelResponse):
    """Response of ``/api/predict``: for each text the output of ``ensue predict --json``."""

    predictions: list[dict[str, Any]]


class FillRequest(ModelRequest):
    """Request of ``/api/fill``."""

    text: Annotated[str, Field(min_length=1, max_length=20_000)]
    top: Annotated[int, Field(ge=1, le=50)] = 5
    rounds: Annotated[int, Field(ge=0, le=50)] = 0


class Filled(ModelResponse):
    """Response of ``/api/fill``."""

    text: str
    gaps: list[Any]


class ForecastRequest(ModelRequest):
    """Request of ``/api/forecast``: past values, one row per step, one number per column."""

    values: Steps
    horizon: Annotated[int, Field(ge=0, le=500)] = 0


class Forecast(ModelResponse):
    """Response of ``/api/forecast``: for each step the output of ``ensue predict --json``."""

    steps: list[dict[str, Any]]


class NeighboursRequest(ModelRequest):
    """Request of ``/api/neighbours``."""

    word: Name
    top: Annotated[int, Field(ge=1, le=100)] = 10
    by: Literal["cosine", "probability", "context"] = "cosine"


class AnalogyRequest(ModelRequest):
    """Request of ``/api/analogy``: first − minus + plus."""

    first: Name
    minus: Name
    plus: Name
    top: Annotated[int, Field(ge=1, le=100)] = 10


class ScoredWord(BaseModel):
    """A word with a cosine or a probability."""

    word: str
    value: float


class WordList(BaseModel):
    """Response of ``/api/neighbours`` and ``/api/analogy``."""

    model: str
    words: list[ScoredWord]


class PageRequest(RequestSchema):
    """Request of ``/api/page/{page}`` (an interactive page)."""

    model_config = ConfigDict(strict=False)  # query parameters are text

    model: Annotated[str, Field(max_length=200)] = ""
    text: Annotated[str, Field(max_length=5_000)] = ""
    beam: Annotated[int, Field(ge=1, le=16)] = 4
    steps: Annotated[int, Field(ge=1, le=8)] = 3
    hidden: Annotated[int, Field(ge=1, le=4)] = 1
    cut: Annotated[int, Field(ge=0, le=8)] = 0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


class ViewRequest(RequestSchema):
    """Request of ``/api/look/{view}`` (a chart)."""

    models: Annotated[list[Name], Field(max_length=8)] = []
    race: Annotated[str, Field(max_length=200)] = ""
    text: Annotated[str, Field(max_length=20_000)] = ""
    target: Annotated[str, Field(max_length=20_000)] = ""
    words: Annotated[str, Field(max_length=5_000)] = ""
    pairs: Annotated[str, Field(max_length=5_000)] = ""
    method: Literal["", "pca", "tsne"] = ""
    word: Annotated[str, Field(max_length=100)] = ""
    part: Literal["", "cross", "source"] = ""
    layer: Annotated[int, Field(ge=0, le=1_000)] = 0
    head: Annotated[int, Field(ge=0, le=1_000)] = 0
    rolled: bool = False
    top: Annotated[int, Field(ge=0, le=100)] = 0
    units: Annotated[int, Field(ge=0, le=1_000)] = 0


class ViewResponse(BaseModel):
    """Response of ``/api/look/{view}``: a Vega-Lite chart, and the numbers that it shows."""

    view: str
    chart: dict[str, Any]
    numbers: dict[str, Any]


class Health(BaseModel):
    """Response of ``/health``."""

    status: Literal["ok"] = "ok"
    models: int


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    """Body of every error response."""

    error: ErrorDetail
