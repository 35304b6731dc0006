"""Attention rolled out over layers."""

from __future__ import annotations

import numpy as np

from ensue.look.instruments.rollout import rollout


def test_layers_by_hand() -> None:
    first = np.array([[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]])  # two heads
    second = np.array([[[1.0, 0.0], [1.0, 0.0]]])
    one = np.array([[1.0, 0.0], [0.125, 0.875]])
    two = np.array([[1.0, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(rollout([first, second]), two @ one)


def test_rows_sum_to_one_and_causal_attention_stays_causal() -> None:
    random = np.random.default_rng(0)
    layers = []
    for _ in range(4):
        weights = np.tril(random.random((3, 6, 6)))
        layers.append(weights / weights.sum(-1, keepdims=True))
    found = rollout(layers)
    np.testing.assert_allclose(found.sum(1), 1)
    assert not np.triu(found, 1).any()
