"""The seccomp filter of the sandbox: a small program (classic BPF) that the kernel runs at every system call.

the architecture differs    the process is killed
the call is allowed         it runs, if its arguments meet their condition
all others                  fail with EPERM, "operation not permitted"
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence

from ensue.measure.sandbox.syscalls import (
    ALLOWED,
    ARCHITECTURES,
    CONDITIONS,
    O_ACCMODE,
    O_TRUNC,
    PID,
    NotTruncatedUnread,
    Null,
    OneOf,
)

LOAD, EQUAL, SOME_BIT, AND, RETURN = 0x20, 0x15, 0x45, 0x54, 0x06
"""Operation codes: load 32 bits of the call, jump if equal, jump if a bit is set, mask, return."""
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
"""Offsets into the kernel's description of a call."""
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM

Instruction = tuple[int, int, int, int]
"""Code, instructions to skip if true, instructions to skip if false, operand."""


def seccomp_filter(machine: str, pid: int) -> bytes:
    """The filter for a process on a machine ("x86_64", "aarch64"), as the kernel's ``sock_filter`` structures."""
    column, architecture = ARCHITECTURES[machine]
    program: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
    ]
    for name, numbers in ALLOWED.items():
        number = numbers[column]
        if number is not None:
            body = _body(name, pid)
            program += [(EQUAL, 0, len(body), number), *body]
    program.append((RETURN, 0, 0, REFUSE))
    return b"".join(struct.pack("<HBBI", *one) for one in program)


def _body(name: str, pid: int) -> Sequence[Instruction]:
    """What is done for a call on the list: every way through it returns."""
    allow, refuse = (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)
    match CONDITIONS.get(name):
        case OneOf(argument, values):
            load = (LOAD, 0, 0, ARGUMENTS + 8 * argument)
            tests = [(EQUAL, 0, 1, pid if value == PID else value) for value in values]
            return [load, *(one for test in tests for one in (test, allow)), refuse]
        case Null(argument):
            low, high = ((LOAD, 0, 0, ARGUMENTS + 8 * argument + half) for half in (0, 4))
            return [low, (EQUAL, 0, 2, 0), high, (EQUAL, 1, 0, 0), refuse, allow]
        case NotTruncatedUnread(argument):
            load = (LOAD, 0, 0, ARGUMENTS + 8 * argument)
            return [load, (SOME_BIT, 0, 3, O_TRUNC), (AND, 0, 0, O_ACCMODE), (EQUAL, 0, 1, 0), refuse, allow]
        case _:
            return [allow]
