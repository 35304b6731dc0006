"""All kernels by name. Importing this imports no numba: loops are compiled, or loaded, when they first run."""

from __future__ import annotations

from typing import Any

from ensue.kernels.add_norm import add_norm
from ensue.kernels.attention import attend, attend_packed
from ensue.kernels.bucket_attention import bucket_attention
from ensue.kernels.capped_cross_entropy import mean_capped_cross_entropy
from ensue.kernels.cross_entropy import mean_cross_entropy
from ensue.kernels.disentangled_attention import disentangled_attention
from ensue.kernels.dropout import dropout_add
from ensue.kernels.experts import mix_experts
from ensue.kernels.feed_forward import feed_forward
from ensue.kernels.gated_feed_forward import gate, gated_feed_forward
from ensue.kernels.grouped import decode_panels, decode_rows
from ensue.kernels.kernel import Kernel
from ensue.kernels.linear_scan import linear_scan
from ensue.kernels.low_rank import low_rank_linear
from ensue.kernels.lstmp import lstmp
from ensue.kernels.matmul import linear, matmul, weight_gradient
from ensue.kernels.recurrent import scan
from ensue.kernels.relative_attention import attend_relative
from ensue.kernels.rms_norm import rms_norm
from ensue.kernels.rotary import rotate

_ALL: tuple[Kernel[..., Any], ...] = (
    feed_forward,
    gated_feed_forward,
    gate,
    add_norm,
    rms_norm,
    dropout_add,
    attend,
    attend_packed,
    attend_relative,
    rotate,
    mean_cross_entropy,
    mean_capped_cross_entropy,
    lstmp,
    scan,
    mix_experts,
    linear,
    matmul,
    weight_gradient,
    decode_panels,
    decode_rows,
    low_rank_linear,
    linear_scan,
    bucket_attention,
    disentangled_attention,
)
KERNELS = {kernel.name: kernel for kernel in _ALL}
"""Each has a ``reference`` and ``fast`` implementations; see ensue.kernels.kernel."""
