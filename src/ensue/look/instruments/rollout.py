"""Attention rollout: the share of each input token in each state after all layers (Abnar and Zuidema, 2020).

    A_l = ½ mean_h P_{l,h} + ½ I          attention plus the residual connection
    R_l = A_l R_{l-1},  R_0 = I

Every row of R_L sums to 1, as every row of P does.

Legend: L layers, H heads, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def rollout(layers: Sequence[np.ndarray]) -> np.ndarray:
    """R_L (T, T) of attention weights (H, T, T), the first layer first.

    >>> rollout([np.array([[[1.0, 0.0], [1.0, 0.0]]])])
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    size = layers[0].shape[-1]
    result = identity = np.eye(size)
    for weights in layers:
        result = (weights.mean(0) / 2 + identity / 2) @ result
    return result
