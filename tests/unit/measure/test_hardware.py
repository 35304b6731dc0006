import pytest

from ensue.core.errors import InputError
from ensue.measure import hardware
from ensue.measure.hardware import HARDWARE, Curve, Machine, find_hardware
from ensue.measure.op_counter import Operation


def test_unknown_hardware_suggests_the_nearest_name():
    with pytest.raises(InputError, match="did you mean 'a100'"):
        find_hardware("a10")


@pytest.mark.parametrize("name", HARDWARE)
def test_figures_of_known_hardware_are_plausible(name):
    one = find_hardware(name)
    assert one.source and 8e9 <= one.memory <= 200e9 and 1e11 < one.bandwidth < 1e13
    assert all(1e12 < speed < 2e15 for speed in one.flops.values()) and one.precision() in one.flops


def test_a_curve_is_constant_beyond_its_ends():
    curve = Curve((10.0, 1000.0), (1.0, 100.0))
    assert curve.at(1) == 1 and curve.at(100) == 10 and curve.at(1e9) == 100


def test_an_operation_takes_the_longer_of_compute_and_memory_time_plus_overhead():
    machine = Machine(Curve((1.0, 2.0), (100.0, 100.0)), Curve((1.0, 2.0), (10.0, 10.0)), 0.5, 1.0)
    assert machine.seconds([Operation(1000, 10)]) == 10.5
    assert machine.seconds([Operation(10, 1000)]) == 100.5
    assert machine.seconds([Operation(0, 0), Operation(0, 0)]) == 1.0


def test_consecutive_matmuls_are_timed_as_small_ones():
    machine = Machine(Curve((10.0, 1000.0), (1.0, 100.0)), Curve((1.0, 2.0), (1e9, 1e9)), 0.0, 1.0)
    assert machine.seconds([Operation(1000, 0)]) == 10
    assert machine.seconds([Operation(1000, 0, steps=100)]) == 1000


def test_this_machine_can_be_measured(monkeypatch):
    monkeypatch.setattr(hardware, "TRIES", 1)
    hardware.measured.cache_clear()
    machine = hardware.measured()
    hardware.measured.cache_clear()
    assert all(speed > 0 for speed in (*machine.matmuls.speeds, *machine.passes.speeds, machine.call))
    assert list(machine.matmuls.sizes) == sorted(machine.matmuls.sizes) and machine.memory > 1e8
