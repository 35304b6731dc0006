"""Parse and format sizes in bytes."""

from __future__ import annotations

import re

from ensue.core.errors import InputError

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def size_in_bytes(text: str) -> int:
    """``500M``, ``1G``, ``1.5GB`` in bytes; a bare number is bytes.

    >>> size_in_bytes("1.5G"), size_in_bytes("200mb"), size_in_bytes("4096")
    (1500000000, 200000000, 4096)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", text.strip().upper())
    result = int(float(match[1]) * UNITS[match[2]]) if match else 0
    if result <= 0:
        raise InputError(f"{text!r} is not a size", hint="write 500M or 4G")
    return result


NAMES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def size_in_words(bytes_: float) -> str:
    """Format a number of bytes.

    >>> size_in_words(698_417_037_312), size_in_words(0)
    ('698.4 GB', '0.0 B')
    """
    unit, name = next(((unit, name) for unit, name in NAMES if bytes_ >= unit), NAMES[-1])
    return f"{bytes_ / unit:.1f} {name}"
