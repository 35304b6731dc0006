"""Where a token stands: sinusoids, learned vectors, rotations.

Self-attention is blind to order (permuting its inputs permutes its outputs), so a position has to be put in.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError, unknown_name
from ensue.core.settings import convert


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """The positional encoding of Vaswani et al. (2017), (…,) → (…, width).

    PE(p, 2i) = sin(p / 10000^{2i/d}),  PE(p, 2i + 1) = cos(p / 10000^{2i/d})

    PE(p + k) is a linear function of PE(p): a rotation in each plane (2i, 2i + 1).
    """
    even = torch.arange(0, width, 2, device=positions.device, dtype=torch.float64)
    angles = positions[..., None].double() * 10000.0 ** (-even / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :width]


class LearnedPositions(nn.Module):
    """A vector for each position, learnt: W_p of GPT and BERT."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(context, width) * 0.02)

    def forward(self, x: Tensor, positions: Tensor, size: int) -> Tensor:
        """Add W_p[positions] to x (B, T, D); all positions are below ``size``."""
        if size > len(self.weight):
            what = f"{size} tokens are more than the {len(self.weight)} that learned positions reach"
            raise InputError(what, hint="train with positions=rotary, or with a longer context")
        return x + nn.functional.embedding(positions, self.weight)


class SinusoidalPositions(nn.Module):
    """``sinusoids`` added to √d times the embedding, as in the paper.

    The table holds ``context`` positions at first, of a long context only some, and grows when it is asked for more: a
    sinusoid has no end.
    """

    first_positions = 1 << 12
    """The most positions that the table holds at first."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.width = width
        positions = torch.arange(min(context, self.first_positions))
        self.register_buffer("table", sinusoids(positions, width), persistent=False)

    def forward(self, x: Tensor, positions: Tensor, size: int) -> Tensor:
        """Add the table's rows to √d · x (B, T, D)."""
        table = self.get_buffer("table")
        if size > len(table):
            table = sinusoids(torch.arange(2 * size, device=x.device), self.width)
            self.register_buffer("table", table, persistent=False)
        return torch.add(table[positions].to(x.dtype), x, alpha=math.sqrt(self.width))


class NoPositions(nn.Module):
    """Nothing added: for models that put the position elsewhere, or nowhere."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, positions: Tensor, size: int) -> Tensor:
        """x as it is."""
        return x


class ScaledInput(nn.Module):
    """The embedding times a factor, before positions are added."""

    def __init__(self, positions: nn.Module, factor: float) -> None:
        super().__init__()
        self.positions, self.factor = positions, factor

    def forward(self, x: Tensor, positions: Tensor, size: int) -> Tensor:
        """Positions added to factor · x (B, T, D)."""
        y: Tensor = self.positions(x * self.factor, positions, size)
        return y


class Rotary(nn.Module):
    """Rotary positions (Su et al., 2021): queries and keys are turned by an angle that grows with position.

    In each plane (j, j + d/2) a vector at position p is rotated by p / base^{2j/d}, so q_p · k_s depends on p − s only.
    ``scaling`` stretches positions of a model that was trained on shorter texts; see ``stretched``.
    """

    def __init__(self, width: int, base: float = 10000.0, scaling: str = "none") -> None:
        super().__init__()
        self.identity = (base, width, scaling)
        """What the angles depend on besides positions."""
        self.fill()

    def fill(self) -> None:
        """Compute the speeds of rotation; again for a module that was built without storage."""
        base, width, scaling = self.identity
        speeds = base ** (-torch.arange(0, width, 2).double() / width)
        self.register_buffer("speeds", stretched(speeds, scaling), persistent=False)
        self.size = vector_size(scaling)

    def forward(self, positions: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin for positions (B or 1, T), as (B or 1, T, d)."""
        speeds: Tensor = self.speeds  # type: ignore[assignment]
        angles = positions[..., None].double() * speeds
        angles = torch.cat([angles, angles], dim=-1)
        cos, sin = angles.cos(), angles.sin()
        if self.size != 1.0:
            cos, sin = self.size * cos, self.size * sin
        return cos.to(like.dtype), sin.to(like.dtype)


def stretched(speeds: Tensor, scaling: str) -> Tensor:
    """Return the speeds of rotation under a scaling: none, linear, llama3 or yarn, as ``llama3:factor=F:original=C``.

    linear    θ / F                                                  positions are interpolated (Chen et al., 2023)
    llama3    θ / F for waves longer than C / low, θ for waves shorter than C / high, and in between a mixture,
              (1 − s) θ / F + s θ,  s = (C / wave − low) / (high − low)        (Llama 3.1; low = 1, high = 4)

    yarn      the same mixture, but s falls from 1 to 0 along the planes: from the last one that turns ``fast`` times in
              C tokens to the first that turns ``slow`` times. Rotated vectors are ``vector_size`` as long (Peng et al.,
              2023).

    A wave is 2π / θ tokens long; C is the context the model was trained on first.

    >>> stretched(torch.tensor([1.0, 0.01]), "linear:factor=4").tolist()
    [0.25, 0.0024999999441206455]
    """
    kind, values = parse_scaling(scaling)
    if kind == "none":
        return speeds
    slow_speeds = speeds / values["factor"]
    if kind == "linear":
        return slow_speeds
    waves = values["original"] * speeds / (2 * math.pi)  # how often a plane turns in C tokens
    if kind == "yarn":
        planes, step = torch.arange(len(speeds), dtype=speeds.dtype), (speeds[0] / speeds[-1]).log() / (len(speeds) - 1)
        fast, slow = ((waves[0] / values[name]).log() / step for name in ("fast", "slow"))  # planes that turn so often
        first, last = fast.floor().clamp(min=0), slow.ceil().clamp(max=2 * len(speeds) - 1)
        share = 1 - ((planes - first) / torch.where(last == first, 0.001, last - first)).clamp(0.0, 1.0)
        return (1 - share) * slow_speeds + share * speeds
    share = ((waves - values["low"]) / (values["high"] - values["low"])).clamp(0.0, 1.0)
    return (1 - share) * slow_speeds + share * speeds


def vector_size(scaling: str) -> float:
    """Return how long rotated vectors are under a scaling, relative to those before: 1, of yarn 1 + 0.1 ln F.

    The option ``attention`` of yarn sets it.
    """
    kind, values = parse_scaling(scaling)
    return 1.0 if kind != "yarn" else values["attention"] or 1.0 + 0.1 * math.log(max(values["factor"], 1.0))


SCALINGS: dict[str, dict[str, float]] = {
    "none": {},
    "linear": {"factor": 1.0},
    "llama3": {"factor": 1.0, "original": 8192.0, "low": 1.0, "high": 4.0},
    "yarn": {"factor": 1.0, "original": 8192.0, "slow": 1.0, "fast": 32.0, "attention": 0.0},
}
"""How rotary positions can be stretched, with options and their defaults."""


def parse_scaling(text: str) -> tuple[str, dict[str, float]]:
    """Parse a scaling of rotary positions.

    >>> parse_scaling("llama3:factor=32")
    ('llama3', {'factor': 32.0, 'original': 8192.0, 'low': 1.0, 'high': 4.0})
    """
    kind, *options = text.split(":")
    if kind not in SCALINGS:
        raise unknown_name("rope_scaling", kind, SCALINGS)
    values = dict(SCALINGS[kind])
    for option in options:
        name, _, number = option.partition("=")
        if name not in values:
            raise unknown_name(f"option of rope_scaling {kind!r}", name, values)
        values[name] = convert(f"rope_scaling.{name}", number, float)
    found = all(0 < value < math.inf or (name, value) == ("attention", 0.0) for name, value in values.items())
    ordered = all(values.get(low, 0.0) < values.get(high, 1.0) for low, high in (("low", "high"), ("slow", "fast")))
    if not found or not ordered:
        what = "numbers must be above 0 and finite, and low below high, slow below fast"
        raise InputError(f"rope_scaling = {text!r}: {what}")
    return kind, values


class LinearBias(nn.Module):
    """ALiBi (Press et al., 2022): a score bias −m_h (p − s) that grows with distance, m_h = 2^{−8h/H}, h = 1 … H.

    For H a power of two, as in the paper. Distances forward count like those back.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
        self.register_buffer("slopes", slopes[:, None, None], persistent=False)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Positions (1 or B, T) and (1 or B, S) → (1 or B, H, T, S)."""
        slopes: Tensor = self.slopes  # type: ignore[assignment]
        return -slopes * (queries[:, None, :, None] - keys[:, None, None]).abs()


POSITIONS: dict[str, type[nn.Module]] = {
    "learned": LearnedPositions,
    "sinusoidal": SinusoidalPositions,
    "rotary": NoPositions,
    "alibi": NoPositions,
    "functional": NoPositions,
    "none": NoPositions,
}
"""What is added to the embedding: "rotary" adds nothing there and rotates queries and keys, "alibi" biases scores,
"functional" puts sinusoids of distances into keys and values."""
