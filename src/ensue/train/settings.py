"""The settings of training, under ``train.`` in run.toml: those of every training, and those of one kind of data."""

from __future__ import annotations

from dataclasses import dataclass

from ensue.core.settings import check, check_below_one, check_positive

OPTIMISERS = ("adamw", "sgd")
SCHEDULES = ("constant", "cosine", "inverse-sqrt", "one-cycle", "plateau", "slanted")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSettings:
    """How a model is trained, whatever on."""

    steps: int = 0
    """How many updates; 0 means as epochs or the budget say. What a budget allowed is written back here."""
    epochs: float = 0.0
    """How many times through the text, where steps is 0."""
    budget: float = 0.0
    """Seconds that training may take; the speed of the first steps fixes the number of steps. 0 means no limit."""
    budget_covers: str = "all"
    """What the budget counts: all, or training (evaluations, checkpoints and the trial of speed come on top)."""
    optimiser: str = "adamw"
    """adamw or sgd."""
    lr: float = 2e-3
    """The highest learning rate."""
    schedule: str = "one-cycle"
    """How the rate moves: constant, cosine, inverse-sqrt, one-cycle, slanted (a triangle: up in the warm-up, then down;
    Howard and Ruder, 2018), or plateau (halved when validation stalls)."""
    warmup: float = 0.1
    """The share of steps in which the rate rises from near 0 (a whole number above 1 counts steps)."""
    floor: float = 0.05
    """Where the rate ends, as a share of the highest (cosine and one-cycle; slanted begins there too)."""
    weight_decay: float = 0.01
    """AdamW's decay of matrices; vectors and norms are left alone."""
    beta1: float = 0.9
    """AdamW's memory of gradients."""
    beta2: float = 0.99
    """AdamW's memory of squared gradients."""
    momentum: float = 0.0
    """SGD's momentum."""
    clip: float = 1.0
    """Gradients with a larger norm are scaled down to this one; 0 switches clipping off."""
    accumulate: int = 1
    """How many batches make one update."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0 means ten in the whole run."""
    log_every: int = 10
    """Steps between lines in metrics.jsonl."""
    eval_every: int = 0
    """Steps between evaluations; 0 means ten in the whole run, fewer where the budget is small."""
    sample_every: int = 0
    """Steps between samples of what the model writes; 0 means none."""
    patience: int = 0
    """Stop after so many evaluations without a better one; 0 means never."""
    keep: str = "best"
    """Which weights the run keeps: best (on the validation text) or last."""
    average: int = 0
    """Weigh the mean of the weights at so many last checkpoints too, and keep it where it is better; 0 means no."""
    precision: str = "auto"
    """float32, bf16, or auto: bf16 on a GPU that computes it, else float32."""
    threads: int = 0
    """Threads of the CPU; 0 means all. Exact resume holds for one number of threads."""
    shard: bool = False
    """Under torchrun: spread weights, gradients and the optimiser's memory over the ranks (FSDP); else each has all."""
    recompute: str = "none"
    """What is computed again on the way back instead of remembered: none, or blocks: a Transformer's, which takes more
    time and, over a long context, less memory."""

    def __post_init__(self) -> None:
        check_positive(self, "accumulate", "log_every")
        for name in ("steps", "checkpoint_every", "eval_every", "sample_every", "patience", "threads", "average"):
            check(self, name, getattr(self, name) >= 0, "0 or more")
        for name in ("epochs", "budget", "warmup", "weight_decay", "clip"):
            check(self, name, 0 <= getattr(self, name) < float("inf"), "0 or more")
        check(self, "lr", 0 < self.lr < float("inf"), "above 0")
        check_below_one(self, "momentum")
        check_below_one(self, "beta1")
        check(self, "beta2", 0 < self.beta2 < 1, "between 0 and 1")
        check(self, "floor", 0 <= self.floor <= 1, "between 0 and 1")
        check(self, "budget_covers", self.budget_covers in ("all", "training"), "all or training")
        check(self, "recompute", self.recompute in ("none", "blocks"), "none or blocks")
        check(self, "optimiser", self.optimiser in OPTIMISERS, " or ".join(OPTIMISERS))
        check(self, "schedule", self.schedule in SCHEDULES, f"one of {', '.join(SCHEDULES)}")
        check(self, "keep", self.keep in ("best", "last"), "best or last")
        check(self, "precision", self.precision in ("auto", "float32", "bf16"), "auto, float32 or bf16")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextTrainSettings(TrainSettings):
    """How a language model is trained on a text."""

    batch: int = 32
    """Rows in a batch, where all rows are equally long."""
    length: int = 0
    """Tokens in a row; 0 means the model's context, or 64 where it has none."""
    cut: str = "auto"
    """How text is cut: streams (state carried on), windows (random), or auto: streams where there is a state."""
    renew: float = 0.03
    """The share of streams that begin anew at each step, so that a model also learns to begin (0: none)."""
    layer_decay: float = 1.0
    """What the learning rate is multiplied by for each layer further from the last one; 1 means all learn alike."""
    memory: int = 0
    """Bytes of memory to count in, for n-grams; what does not fit is sorted on disk. 0 means all in memory."""

    def __post_init__(self) -> None:
        super(TextTrainSettings, self).__post_init__()  # with slots, super() would look for the class without them
        check_positive(self, "batch")
        check(self, "length", self.length >= 0, "0 or more")
        check(self, "cut", self.cut in ("auto", "streams", "windows"), "auto, streams or windows")
        check(self, "renew", 0 <= self.renew <= 1, "between 0 and 1")
        check(self, "memory", self.memory >= 0, "0 or more")
        check(self, "layer_decay", 0 < self.layer_decay <= 1, "above 0 and at most 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class PairTrainSettings(TrainSettings):
    """How a translation model is trained on pairs."""

    batch_tokens: int = 2000
    """Tokens in a batch of sentences of similar lengths, padding counted, on the longer side."""
    label_smoothing: float = 0.0
    """The share of the target that is spread evenly over all tokens."""
    objective: str = "likelihood"
    """What is made large: likelihood, or reward: the expected GLEU of the model's own translations (fine-tuning)."""
    samples: int = 8
    """How many translations of a sentence are drawn to estimate the expected reward."""
    likelihood: float = 0.02
    """The weight of likelihood beside the expected reward."""

    def __post_init__(self) -> None:
        super(PairTrainSettings, self).__post_init__()
        check_positive(self, "batch_tokens")
        check_below_one(self, "label_smoothing")
        check(self, "objective", self.objective in ("likelihood", "reward"), "likelihood or reward")
        check(self, "samples", self.samples >= 2, "at least 2")
        check(self, "likelihood", 0 <= self.likelihood < float("inf"), "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedTrainSettings(TrainSettings):
    """How an encoder is trained to fill in what is hidden."""

    batch: int = 32
    """Rows in a batch."""
    length: int = 0
    """Tokens in a row, marks included; 0 means the model's context."""
    mask: float = 0.15
    """The share of a row's tokens that is hidden."""
    mask_as_mask: float = 0.8
    """Of the hidden tokens, the share that becomes the mask."""
    mask_as_random: float = 0.1
    """Of the hidden tokens, the share that becomes a random token; the rest stays as it is."""
    mask_anew: bool = True
    """Whether other tokens are hidden each time a text is read (RoBERTa); else the same every time."""

    def __post_init__(self) -> None:
        super(MaskedTrainSettings, self).__post_init__()
        check_positive(self, "batch")
        check(self, "length", self.length >= 0, "0 or more")
        check(self, "mask", 0 < self.mask < 1, "between 0 and 1")
        check(self, "mask_as_mask", 0 <= self.mask_as_mask <= 1, "between 0 and 1")
        rest = 1 - self.mask_as_mask
        check(self, "mask_as_random", 0 <= self.mask_as_random <= rest + 1e-9, f"between 0 and {rest:g}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextTrainSettings(TrainSettings):
    """How a model of words in context is trained on sentences."""

    batch_tokens: int = 1500
    """Words in a batch of sentences of similar lengths, padding counted."""

    def __post_init__(self) -> None:
        super(ContextTrainSettings, self).__post_init__()
        check_positive(self, "batch_tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelTrainSettings(TrainSettings):
    """How a model is trained to label."""

    batch_tokens: int = 0
    """Tokens in a batch of rows of similar lengths, padding counted; 0 means 1,000, or more where texts are so long
    that fewer than 16 examples would fit."""
    label_smoothing: float = 0.0
    """The share of the target that is spread evenly over all labels."""
    class_weights: str = "none"
    """How much a label's examples count: none (each the same), or balanced (each label the same)."""
    layer_decay: float = 1.0
    """What the learning rate is multiplied by for each layer further from the head; 1 means all learn alike."""
    freeze: int = 0
    """How many layers stay as they are, from the embeddings (1) upward; -1 means the whole body."""
    unfreeze: float = 0.0
    """Epochs after which one more frozen layer is let go, from the top (gradual unfreezing); 0 means never."""
    reach: int = 0
    """Tokens over which gradients reach back in a recurrent body, which reads a long text in such parts (truncated
    backpropagation); 0 means the whole text."""
    adapters: int = 0
    """The rank of low-rank adapters that are trained in place of the body's weights; 0 means none."""
    adapters_alpha: float = 16.0
    """How much adapters count: their product is multiplied by this and divided by the rank."""
    language: float = 0.0
    """The weight of the loss of the next token beside that of the label, for language models."""

    def __post_init__(self) -> None:
        super(LabelTrainSettings, self).__post_init__()
        check(self, "batch_tokens", self.batch_tokens >= 0, "0 or more")
        check_below_one(self, "label_smoothing")
        check(self, "class_weights", self.class_weights in ("none", "balanced"), "none or balanced")
        check(self, "layer_decay", 0 < self.layer_decay <= 1, "above 0 and at most 1")
        check(self, "freeze", self.freeze >= -1, "-1 or more")
        for name in ("adapters", "reach"):
            check(self, name, getattr(self, name) >= 0, "0 or more")
        for name in ("unfreeze", "language"):
            check(self, name, 0 <= getattr(self, name) < float("inf"), "0 or more")
        check(self, "adapters_alpha", 0 < self.adapters_alpha < float("inf"), "above 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class WordTrainSettings:
    """How word vectors are learnt."""

    steps: int = 0
    """How many stretches of the text are gone through; 0 means as epochs and the budget say. Written back here."""
    epochs: float = 5.0
    """How many times through the text, where steps is 0."""
    budget: float = 0.0
    """Seconds that training may take; the speed of the first stretches decides whether steps must be fewer. 0: all."""
    lr: float = 0.0
    """The learning rate at the beginning; it falls in a straight line. 0 means 0.025, for cbow 0.075."""
    floor: float = 0.004
    """What is left of the rate at the end, as a share."""
    subsample: float = 1e-3
    """Words with a larger share of the text than this are left out now and then, the more the oftener; 0: none are."""
    dynamic: bool = True
    """Whether the window is drawn anew for each centre, from 1 to its size, so that near words count more."""
    threads: int = 0
    """1 is repeatable, and resumed, to the bit. More are faster, write over each other, and never give the same twice.
    0 means 1 for a short text, where it takes seconds, else all."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0 means one every half minute."""
    log_every: int = 10
    """Steps between lines in metrics.jsonl."""

    def __post_init__(self) -> None:
        check_positive(self, "log_every")
        for name in ("steps", "checkpoint_every", "threads"):
            check(self, name, getattr(self, name) >= 0, "0 or more")
        for name in ("epochs", "budget", "lr", "subsample"):
            check(self, name, 0 <= getattr(self, name) < float("inf"), "0 or more")
        check(self, "steps", bool(self.steps or self.epochs), "above 0 where epochs is 0")
        check(self, "floor", 0 <= self.floor <= 1, "between 0 and 1")
        check(self, "threads", self.threads <= 256, "at most 256")


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastTrainSettings(TrainSettings):
    """How a model is trained to forecast."""

    batch: int = 32
    """Windows in a batch."""
    loss: str = "auto"
    """What is made small: mse, mae, pinball (of quantiles), or auto: pinball where there are quantiles, else mse."""

    def __post_init__(self) -> None:
        super(ForecastTrainSettings, self).__post_init__()
        check_positive(self, "batch")
        check(self, "loss", self.loss in ("auto", "mse", "mae", "pinball"), "mse, mae, pinball or auto")
