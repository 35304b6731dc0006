"""What clients may ask and what they are answered, with limits: the forms of OpenAI's API and our own."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ensue.search.sampling import Sampling

Text = Annotated[str, Field(max_length=100_000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Tokens = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, max_length=100_000)]
Stop = Annotated[str, Field(min_length=1, max_length=100)]


class Form(BaseModel):
    """What is sent; fields that are not known are left aside, as clients of other servers send them.

    A field is what it is described as: "1" and true are no numbers.
    """

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, sent: Any) -> Any:
        """1.0 is a whole number too, as JSON has it."""
        if not isinstance(sent, dict):
            return sent
        return {name: int(one) if isinstance(one, float) and one.is_integer() else one for name, one in sent.items()}


class StreamOptions(Form):
    """What a stream tells beside its pieces."""

    include_usage: bool | None = None


class CompletionForm(Form):
    """``/v1/completions``; null is as good as nothing."""

    model: Name
    prompt: (
        Text
        | Annotated[list[Text], Field(min_length=1, max_length=16)]
        | Tokens
        | Annotated[list[Tokens], Field(min_length=1, max_length=16)]
        | None
    ) = ""
    max_tokens: Annotated[int, Field(ge=0, le=4096)] | None = 16
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] | None = 0
    n: Annotated[int, Field(ge=1, le=16)] | None = 1
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = False
    stop: Stop | Annotated[list[Stop], Field(max_length=4)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    suffix: Text | None = None
    best_of: Annotated[int, Field(ge=1, le=16)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: dict[str, float] | None = None
    """The last five are OpenAI's, and refused where they would do something."""

    @property
    def unknown(self) -> str:
        """The first wish that cannot be met, for no answer is better than one that leaves it aside."""
        best = self.best_of is not None and self.best_of > self.choices
        plain = ("suffix", "frequency_penalty", "presence_penalty", "logit_bias")
        return next((name for name in plain if getattr(self, name)), "best_of" if best else "")

    @property
    def choices(self) -> int:
        """How many texts are written for each prompt."""
        return 1 if self.n is None else self.n

    @property
    def tokens(self) -> int:
        """How many tokens each has at the most."""
        return 16 if self.max_tokens is None else self.max_tokens

    @property
    def usage_too(self) -> bool:
        """Whether a stream ends with what it took."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def sampling(self, number: int, seed: int) -> Sampling:
        """How the ``number``-th choice is drawn."""
        return Sampling(
            tokens=max(1, self.tokens),  # of none nothing is drawn
            temperature=1.0 if self.temperature is None else self.temperature,
            top_k=self.top_k or 0,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=(seed + number) % 2**63,
        )


class LogProbs(BaseModel):
    """Of each token: its text, its log P, the likeliest in its place, and where its text begins."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class Choice(BaseModel):
    """One continuation."""

    text: str
    index: int
    logprobs: LogProbs | None = None
    finish_reason: Literal["stop", "length"] | None = None


class Usage(BaseModel):
    """Tokens read and written."""

    prompt_tokens: int
    completion_tokens: int = 0
    total_tokens: int


class Completion(BaseModel):
    """What ``/v1/completions`` answers, whole or as one piece of a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage | None = None


class EmbeddingForm(Form):
    """``/v1/embeddings``."""

    model: Name
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=256)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """As many as the model has, or none given."""


class Embedding(BaseModel):
    """A vector: numbers, or their float32 bytes in base 64."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Embeddings(BaseModel):
    """What ``/v1/embeddings`` answers."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class Figure(BaseModel):
    """A figure as people read it."""

    name: str
    value: str


class SeriesForm(BaseModel):
    """What a forecaster reads and says: so many steps of some columns, and the next steps of the first of them."""

    names: list[str]
    targets: int
    window: int
    horizon: int
    low: float
    high: float
    """Between which most of what it learnt from lies, of the first column."""


class ModelCard(BaseModel):
    """A run that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "ensue"
    system: str
    task: str
    parameters: int | None = None
    can: list[str]
    """What it can be asked for; see ``ensue.serve.abilities``."""
    figures: list[Figure] = []
    """On what was held out as it was trained."""
    series: SeriesForm | None = None


class Models(BaseModel):
    """What ``/v1/models`` answers."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class Runs(BaseModel):
    """What ``/api/runs`` answers: the runs, and the races whose folders were given."""

    runs: list[ModelCard]
    races: list[str]


class NextForm(Form):
    """``/api/next``."""

    model: Name
    text: Annotated[str, Field(max_length=20_000)] = ""
    top: Annotated[int, Field(ge=1, le=100)] = 10


class Likely(BaseModel):
    """A token and its probability."""

    token: str
    text: str | None
    """What it adds to the text; null for a mark that stands for none."""
    probability: float


class Next(BaseModel):
    """What ``/api/next`` answers."""

    model: str
    next: list[Likely]
    notes: list[str] = []


class TranslateForm(Form):
    """``/api/translate``."""

    model: Name
    lines: Annotated[list[Annotated[str, Field(max_length=5_000)]], Field(min_length=1, max_length=64)]
    beam: Annotated[int, Field(ge=1, le=16)] = 5
    length: Literal["none", "mean", "gnmt"] = "mean"
    alpha: Annotated[float, Field(ge=0, le=10)] = 0.6
    coverage: Annotated[float, Field(ge=0, le=10)] = 0.0
    nbest: Annotated[int, Field(ge=1, le=16)] = 1
    prefix: Annotated[str, Field(max_length=1_000)] = ""
    trace: bool = False
    """Of a single line."""


class Translated(BaseModel):
    """A line and what became of it."""

    source: str
    text: str
    log_prob: float
    nbest: list[dict[str, Any]]


class Translations(BaseModel):
    """What ``/api/translate`` answers."""

    model: str
    translations: list[Translated]
    trace: dict[str, Any] | None = None
    notes: list[str] = []


class PredictForm(Form):
    """``/api/predict``."""

    model: Name
    texts: Annotated[list[Text], Field(min_length=1, max_length=256)]


class Predictions(BaseModel):
    """What ``/api/predict`` answers: for each text what ``ensue predict --json`` says of it."""

    model: str
    predictions: list[dict[str, Any]]
    notes: list[str] = []
    """What people should know: that a text was cut, for one."""


class FillForm(Form):
    """``/api/fill``."""

    model: Name
    text: Annotated[str, Field(min_length=1, max_length=20_000)]
    top: Annotated[int, Field(ge=1, le=50)] = 5
    rounds: Annotated[int, Field(ge=0, le=50)] = 0


class Filling(BaseModel):
    """What ``/api/fill`` answers."""

    model: str
    text: str
    gaps: list[Any]
    notes: list[str] = []


class ForecastForm(Form):
    """``/api/forecast``: the past, a row a step, a number for each column that the run reads."""

    model: Name
    values: Annotated[
        list[Annotated[list[float], Field(min_length=1, max_length=64)]], Field(min_length=1, max_length=10_000)
    ]
    horizon: Annotated[int, Field(ge=0, le=500)] = 0


class Forecast(BaseModel):
    """What ``/api/forecast`` answers: for each step what ``ensue predict --json`` says of it."""

    model: str
    steps: list[dict[str, Any]]
    notes: list[str] = []


class NeighboursForm(Form):
    """``/api/neighbours``."""

    model: Name
    word: Annotated[str, Field(min_length=1, max_length=200)]
    top: Annotated[int, Field(ge=1, le=100)] = 10
    by: Literal["cosine", "probability", "context"] = "cosine"


class AnalogyForm(Form):
    """``/api/analogy``: first − minus + plus."""

    model: Name
    first: Annotated[str, Field(min_length=1, max_length=200)]
    minus: Annotated[str, Field(min_length=1, max_length=200)]
    plus: Annotated[str, Field(min_length=1, max_length=200)]
    top: Annotated[int, Field(ge=1, le=100)] = 10


class Near(BaseModel):
    """A word, and how near it is: a cosine, or a probability."""

    word: str
    value: float


class Words(BaseModel):
    """What ``/api/neighbours`` and ``/api/analogy`` answer."""

    model: str
    words: list[Near]


class PageForm(Form):
    """``/api/page/{page}``: what a page that one steps through is of."""

    model_config = ConfigDict(strict=False)  # an address holds nothing but text

    model: Annotated[str, Field(max_length=200)] = ""
    text: Annotated[str, Field(max_length=5_000)] = ""
    beam: Annotated[int, Field(ge=1, le=16)] = 4
    steps: Annotated[int, Field(ge=1, le=8)] = 3
    hidden: Annotated[int, Field(ge=1, le=4)] = 1
    cut: Annotated[int, Field(ge=0, le=8)] = 0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


class LookForm(Form):
    """``/api/look/{view}``: what the view is of, and how."""

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


class Looked(BaseModel):
    """A view: its chart as Vega-Lite, and the numbers that it shows."""

    view: str
    chart: dict[str, Any]
    numbers: dict[str, Any]


class Health(BaseModel):
    """What ``/health`` answers."""

    status: Literal["ok"] = "ok"
    models: int


class Problem(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class Failure(BaseModel):
    """What every refusal answers."""

    error: Problem
