"""The device and the precision that this machine offers."""

from __future__ import annotations

import subprocess
import sys

from ensue.core.errors import InputError


def check_device(name: str) -> str:
    """Return the device that a name stands for; raise InputError if this machine does not have it."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=torch.device(name)).item()
    except (RuntimeError, AssertionError, ValueError) as error:
        hint = "--device auto takes the fastest there is"
        raise InputError(f"there is no device {name!r} here", hint=hint) from error
    return name


def check_bf16(device: str) -> None:
    """Raise InputError if this CPU cannot compute in bf16.

    Some CPUs report bf16 and crash on it, so another process tries it.
    """
    if device != "cpu":
        return
    trial = "import torch; x = torch.ones(1, 64, 64).bfloat16(); torch.nn.LSTM(64, 64).bfloat16()(x); x @ x"
    if subprocess.run([sys.executable, "-W", "ignore", "-c", trial], capture_output=True, check=False).returncode:
        raise InputError("this CPU does not compute bf16", hint="use --set train.precision=float32")
