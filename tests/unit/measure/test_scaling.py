"""How mixers grow with length: slopes, crossovers, and that what is measured is measured."""

import pytest
import torch

from ensue.measure import scaling
from ensue.measure.scaling import crossover, decode_seconds, exponent, make_mixer, step_bytes, step_seconds


def test_the_exponent_is_the_slope_of_logarithms():
    lengths = [512, 1024, 2048, 4096]
    assert exponent(lengths, [7e-9 * n**1.5 for n in lengths]) == pytest.approx(1.5)
    assert exponent([512], [1.0]) is None


def test_the_crossover_lies_where_the_lines_meet():
    lengths = [256, 512, 1024, 2048]
    full, other = [n**2 / 1000**2 for n in lengths], [n / 1000 for n in lengths]
    assert crossover(lengths, other, full) == pytest.approx(1000)
    assert crossover(lengths, [10.0] * 4, full) is None
    assert crossover(lengths, [1e-9] * 4, full) == 256
    assert crossover(lengths, [1e-9, 1e9, 1e-9, 1e-9], full) > 512  # from where it stays below


def test_memory_of_a_step_counts_what_is_alive_at_once():
    class Holds(torch.nn.Module):
        def forward(self, x):
            return torch.cat([x, x]).clone()[:1], None, None

    x = torch.zeros(1, 1000, 25, requires_grad=True)  # 100 kB
    assert 400_000 <= step_bytes(Holds(), x) < 900_000


@pytest.mark.parametrize("name", ["full", "linear"])
def test_a_mixer_is_built_for_its_length_and_timed(name):
    mixer, x = make_mixer(name, 48, 32, 2, causal=True)
    assert x.shape == (1, 48, 32)
    assert step_seconds(mixer, x) > 0 and x.grad is not None
    assert decode_seconds(mixer, x) > 0 and mixer.training
    assert step_bytes(mixer, x) > 48 * 32 * 4


@pytest.mark.parametrize(("threads", "expected"), [(1, 2.0), (2, 5.0)])
def test_one_thread_is_timed_by_what_it_computes_and_not_by_how_long_it_waits(monkeypatch, threads, expected):
    mixer, x = make_mixer("mean", 4, 8, 1, causal=True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(scaling.time, "process_time", iter([10.0, 12.0]).__next__)
    monkeypatch.setattr(scaling.time, "perf_counter", iter([20.0, 25.0]).__next__)
    assert step_seconds(mixer, x) == expected
