"""Training settings, under ``train.`` in run.toml: common ones, and those of one kind of data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ensue.core.settings import Need, check, check_below_one, check_not_negative, check_positive

CLOCKS = ("wall", "cpu")
OPTIMISERS = ("adamw", "sgd")
SCHEDULES = ("constant", "cosine", "inverse-sqrt", "one-cycle", "plateau", "slanted")
MASK_UNITS = ("tokens", "words", "spans")
MAX_THREADS = 1024
"""OpenMP ends the process if it cannot start as many threads as it is told to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSettings:
    """Training settings of all tasks."""

    needs: ClassVar[dict[str, Need]] = {
        **dict.fromkeys(("weight_decay", "beta1", "beta2"), ("optimiser", ("adamw",))),
        "momentum": ("optimiser", ("sgd",)),
        "floor": ("schedule", ("cosine", "one-cycle", "slanted")),
    }
    steps: int = 0
    """Number of updates; 0 means set by epochs or the budget, and then written back here."""
    epochs: float = 0.0
    """Number of epochs if steps is 0."""
    budget: float = 0.0
    """Time limit in seconds: steps are planned from the speed of the first ones, and the plan is revised as the speed
    changes. 0 means no limit."""
    budget_covers: str = "all"
    """What counts against the budget: all, or training (without evaluations and checkpoints)."""
    budget_clock: str = "wall"
    """How a budget is counted: wall, or cpu (CPU time of the training, which other processes hardly change)."""
    plan: tuple[str, ...] = ()
    """Revisions of the plan that a budget made, written by the training: from which update on how many steps and
    threads. A repeated run follows them."""
    optimiser: str = "adamw"
    """adamw or sgd."""
    lr: float = 2e-3
    """Maximum learning rate."""
    schedule: str = "one-cycle"
    """Learning-rate schedule: constant, cosine, inverse-sqrt, one-cycle, slanted (triangular; Howard and Ruder, 2018)
    or plateau (halved when validation stops improving)."""
    warmup: float = 0.1
    """Warm-up as a share of all steps, or as a number of steps if above 1."""
    floor: float = 0.05
    """Final learning rate as a share of the maximum (cosine and one-cycle; slanted also starts there)."""
    weight_decay: float = 0.01
    """AdamW's weight decay, applied to matrices only."""
    beta1: float = 0.9
    """AdamW's β1."""
    beta2: float = 0.99
    """AdamW's β2."""
    momentum: float = 0.0
    """SGD's momentum."""
    clip: float = 1.0
    """Maximum gradient norm; 0 means no clipping."""
    accumulate: int = 1
    """Number of batches per update (gradient accumulation)."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0 means ten in the whole run."""
    evaluations: int = 10
    """Number of evaluations in the whole run if eval_every is 0; lowered, even to none, where they would take much
    of the budget."""
    log_every: int = 10
    """Steps between records in metrics.jsonl."""
    eval_every: int = 0
    """Steps between evaluations; 0 means as many in the whole run as ``evaluations`` says."""
    sample_every: int = 0
    """Steps between generated samples; 0 means none."""
    patience: int = 0
    """Stop after this number of evaluations without improvement; 0 means never."""
    keep: str = "best"
    """Which weights the run keeps: best (on validation data) or last."""
    average: int = 0
    """Also evaluate the mean weights of this number of last checkpoints, and keep them if better; 0 means no."""
    precision: str = "auto"
    """float32, bf16, or auto: bf16 on a GPU that supports it, else float32."""
    threads: int = 0
    """Number of CPU threads; 0 means all. Bit-exact resume needs the same number of threads."""
    shard: bool = False
    """With torchrun, shard weights, gradients and optimiser state over ranks (FSDP)."""
    recompute: str = "none"
    """Activation checkpointing: none, or blocks (recomputes Transformer blocks in the backward pass: slower, but needs
    less memory for long contexts)."""

    def __post_init__(self) -> None:
        check_positive(self, "accumulate", "log_every")
        counts = (
            "evaluations",
            "steps",
            "checkpoint_every",
            "eval_every",
            "sample_every",
            "patience",
            "threads",
            "average",
        )
        check_not_negative(self, *counts, "epochs", "budget", "warmup", "weight_decay", "clip")
        check(self, "threads", self.threads <= MAX_THREADS, f"at most {MAX_THREADS:,}")
        check(self, "lr", 0 < self.lr < float("inf"), "above 0")
        check_below_one(self, "momentum", "beta1")
        check(self, "beta2", 0 < self.beta2 < 1, "between 0 and 1")
        check(self, "floor", 0 <= self.floor <= 1, "between 0 and 1")
        check(self, "budget_clock", self.budget_clock in CLOCKS, " or ".join(CLOCKS))
        check(self, "budget_covers", self.budget_covers in ("all", "training"), "all or training")
        check(self, "recompute", self.recompute in ("none", "blocks"), "none or blocks")
        check(self, "optimiser", self.optimiser in OPTIMISERS, " or ".join(OPTIMISERS))
        check(self, "schedule", self.schedule in SCHEDULES, f"one of {', '.join(SCHEDULES)}")
        check(self, "keep", self.keep in ("best", "last"), "best or last")
        check(self, "precision", self.precision in ("auto", "float32", "bf16"), "auto, float32 or bf16")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextTrainSettings(TrainSettings):
    """Training settings of language models."""

    needs: ClassVar[dict[str, Need]] = {"renew": ("cut", ("auto", "streams")), "lora_alpha": ("lora", ())}
    batch: int = 32
    """Batch size in rows."""
    length: int = 0
    """Tokens in a row; 0 means the model's context, or 64 if it has none."""
    cut: str = "auto"
    """How text is split: streams (the state is carried on), windows (random), or auto: streams if there is a state."""
    renew: float = 0.03
    """Share of streams whose state is reset at each step, so that the model is also trained from the initial state."""
    layer_decay: float = 1.0
    """Learning-rate factor from each layer to the one below it; 1 means the same rate for all."""
    lora: int = 0
    """Rank of low-rank adapters (LoRA) trained instead of the weights of the run of --from; 0 means none."""
    lora_alpha: float = 16.0
    """LoRA's α: adapters are scaled by α / rank."""

    def __post_init__(self) -> None:
        super(TextTrainSettings, self).__post_init__()  # with slots, super() would look for the class without them
        check_positive(self, "batch")
        check_not_negative(self, "length", "lora")
        check(self, "lora_alpha", 0 < self.lora_alpha < float("inf"), "above 0")
        check(self, "cut", self.cut in ("auto", "streams", "windows"), "auto, streams or windows")
        check(self, "renew", 0 <= self.renew <= 1, "between 0 and 1")
        check(self, "layer_decay", 0 < self.layer_decay <= 1, "above 0 and at most 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class CountTrainSettings:
    """Training settings of systems that count: they have no steps, no learning rate and no gradient."""

    budget: float = 0.0
    """Time limit in seconds; the model then has what was counted so far. 0 means no limit."""
    threads: int = 0
    """Number of CPU threads; 0 means all."""

    def __post_init__(self) -> None:
        check_not_negative(self, "budget", "threads")
        check(self, "threads", self.threads <= MAX_THREADS, f"at most {MAX_THREADS:,}")


@dataclass(frozen=True, kw_only=True, slots=True)
class NGramTrainSettings(CountTrainSettings):
    """Training settings of n-grams."""

    memory: int = 0
    """Memory limit in bytes for counting; above it n-grams are sorted on disk. 0 means no limit."""
    recount: bool = True
    """Count the held-out part too, after a model of the rest was measured on it; false keeps the model of the rest."""

    def __post_init__(self) -> None:
        super(NGramTrainSettings, self).__post_init__()
        check_not_negative(self, "memory")


@dataclass(frozen=True, kw_only=True, slots=True)
class PairTrainSettings(TrainSettings):
    """Training settings of translation."""

    needs: ClassVar[dict[str, Need]] = dict.fromkeys(("samples", "likelihood"), ("objective", ("reward",)))
    batch_tokens: int = 2000
    """Batch size in tokens with padding, on the longer side of the pairs."""
    label_smoothing: float = 0.0
    """Label smoothing."""
    objective: str = "likelihood"
    """Objective: likelihood, or reward (the expected GLEU of sampled translations, for fine-tuning)."""
    samples: int = 8
    """Number of sampled translations per sentence for the expected reward."""
    likelihood: float = 0.02
    """Weight of the likelihood beside the expected reward."""

    def __post_init__(self) -> None:
        super(PairTrainSettings, self).__post_init__()
        check_positive(self, "batch_tokens")
        check_below_one(self, "label_smoothing")
        check(self, "objective", self.objective in ("likelihood", "reward"), "likelihood or reward")
        check(self, "samples", self.samples >= 2, "at least 2")
        check_not_negative(self, "likelihood")


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedTrainSettings(TrainSettings):
    """Training settings of masked language modelling."""

    batch: int = 32
    """Rows in a batch."""
    length: int = 0
    """Tokens in a row with special tokens; 0 means the model's context."""
    mask: float = 0.15
    """Share of tokens that are masked."""
    mask_as_mask: float = 0.8
    """Share of masked tokens replaced by the mask token."""
    mask_as_random: float = 0.1
    """Share of masked tokens replaced by a random token; the rest is unchanged."""
    mask_unit: str = "tokens"
    """What is masked at once: tokens, words (all tokens of a word) or spans (one to ten words; SpanBERT)."""
    mask_anew: bool = True
    """Dynamic masking: new masks in every epoch (RoBERTa)."""

    def __post_init__(self) -> None:
        super(MaskedTrainSettings, self).__post_init__()
        check_positive(self, "batch")
        check_not_negative(self, "length")
        check(self, "mask", 0 < self.mask < 1, "between 0 and 1")
        check(self, "mask_as_mask", 0 <= self.mask_as_mask <= 1, "between 0 and 1")
        check(self, "mask_unit", self.mask_unit in MASK_UNITS, f"one of {', '.join(MASK_UNITS)}")
        rest = 1 - self.mask_as_mask
        check(self, "mask_as_random", 0 <= self.mask_as_random <= rest + 1e-9, f"between 0 and {rest:g}")


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanTrainSettings(TrainSettings):
    """Training settings of span corruption."""

    batch: int = 32
    """Rows in a batch."""
    length: int = 0
    """The most tokens of a source, or of a target, with special tokens; 0 means the model's context."""
    lost: float = 0.15
    """Share of tokens that are left out."""
    mean_span: float = 3.0
    """Mean length of the spans that are left out, in tokens."""

    def __post_init__(self) -> None:
        super(SpanTrainSettings, self).__post_init__()
        check_positive(self, "batch")
        check_not_negative(self, "length")
        check(self, "lost", 0 < self.lost < 1, "between 0 and 1")
        check(self, "mean_span", 1 <= self.mean_span < float("inf"), "1 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextTrainSettings(TrainSettings):
    """Training settings of contextual word models."""

    batch_tokens: int = 1500
    """Batch size in words with padding."""

    def __post_init__(self) -> None:
        super(ContextTrainSettings, self).__post_init__()
        check_positive(self, "batch_tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelTrainSettings(TrainSettings):
    """Training settings of labelling tasks."""

    needs: ClassVar[dict[str, Need]] = {"lora_alpha": ("lora", ())}
    batch_tokens: int = 0
    """Batch size in tokens with padding; 0 means 1,000, or more for long texts, so that at least 16 examples fit."""
    label_smoothing: float = 0.0
    """Label smoothing."""
    class_weights: str = "none"
    """Class weights: none, or balanced (inverse to the frequency of labels)."""
    layer_decay: float = 1.0
    """Learning-rate factor from each layer to the one below it; 1 means the same rate for all."""
    freeze: int = 0
    """Number of frozen layers from the embeddings (1) up; -1 means the whole backbone."""
    unfreeze: float = 0.0
    """Epochs between unfreezing one more layer, from the top (gradual unfreezing); 0 means never."""
    reach: int = 0
    """Length in tokens of truncated backpropagation in a recurrent backbone; 0 means the whole text."""
    lora: int = 0
    """Rank of low-rank adapters (LoRA) trained instead of the backbone's weights; 0 means none."""
    lora_alpha: float = 16.0
    """LoRA's α: adapters are scaled by α / rank."""
    language: float = 0.0
    """Weight of the auxiliary next-token loss, for language models."""

    def __post_init__(self) -> None:
        super(LabelTrainSettings, self).__post_init__()
        check_not_negative(self, "batch_tokens", "lora", "reach", "unfreeze", "language")
        check_below_one(self, "label_smoothing")
        check(self, "class_weights", self.class_weights in ("none", "balanced"), "none or balanced")
        check(self, "layer_decay", 0 < self.layer_decay <= 1, "above 0 and at most 1")
        check(self, "freeze", self.freeze >= -1, "-1 or more")
        check(self, "lora_alpha", 0 < self.lora_alpha < float("inf"), "above 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class WordTrainSettings:
    """Training settings of word vectors."""

    steps: int = 0
    """Number of steps, each a chunk of the text; 0 means set by epochs and the budget, and then written back here."""
    epochs: float = 5.0
    """Number of epochs if steps is 0."""
    budget: float = 0.0
    """Time limit in seconds; the number of steps is reduced if they are too slow. 0 means no limit."""
    plan: tuple[str, ...] = ()
    """Revisions of the plan that a budget made, written by the training; a repeated run follows them."""
    lr: float = 0.0
    """Initial learning rate, which decays linearly. 0 means 0.025, for cbow 0.075."""
    floor: float = 0.004
    """Final learning rate as a share of the initial one."""
    subsample: float = 1e-3
    """Subsampling threshold for frequent words; 0 means no subsampling."""
    dynamic: bool = True
    """Sample the window size of each centre word uniformly from 1 to ``window``."""
    threads: int = 0
    """Number of threads. One is reproducible and resumes bit-exactly; more are faster but not reproducible. 0 means 1
    for short texts, else all."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0 means one every 30 seconds."""
    log_every: int = 10
    """Steps between records in metrics.jsonl."""

    def __post_init__(self) -> None:
        check_positive(self, "log_every")
        check_not_negative(self, "steps", "checkpoint_every", "threads", "epochs", "budget", "lr", "subsample")
        check(self, "steps", bool(self.steps or self.epochs), "above 0 where epochs is 0")
        check(self, "floor", 0 <= self.floor <= 1, "between 0 and 1")
        check(self, "threads", self.threads <= 256, "at most 256")


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastTrainSettings(TrainSettings):
    """Training settings of forecasting."""

    batch: int = 32
    """Batch size in windows."""
    loss: str = "auto"
    """Loss: mse, mae, pinball (for quantiles), or auto: pinball if there are quantiles, else mse."""

    def __post_init__(self) -> None:
        super(ForecastTrainSettings, self).__post_init__()
        check_positive(self, "batch")
        check(self, "loss", self.loss in ("auto", "mse", "mae", "pinball"), "mse, mae, pinball or auto")
