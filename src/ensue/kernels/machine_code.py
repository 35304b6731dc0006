"""Loads machine code: the object file of a compiled loop becomes a function in memory, without LLVM.

An object (ELF, relocatable) holds sections, a table of symbols, and relocations: places where the address of a symbol
is written once it is known. Objects of loops need nothing but the C library, and all their addresses have 64 bits, so
one kind of relocation is enough; another one is refused.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

MAGIC = b"\x7fELF\x02\x01"
"""ELF of 64 bits, little-endian."""
RELOCATABLE, X86_64 = 1, 62
SYMBOLS, RELOCATIONS, NO_BITS = 2, 4, 8
ALLOCATED, WRITABLE = 2, 1
UNWINDING = (".eh_frame",)
"""Sections for debuggers, which nothing here reads."""
UNDEFINED, COMMON = 0, 0xFFF2
ADDRESS = 1
"""R_X86_64_64: the address of a symbol plus a number, 64 bits."""
PAGE = mmap.PAGESIZE


class UnsupportedObject(ValueError):
    """An object that needs what is not supported here."""


class Section(NamedTuple):
    """A header of a section, in the order of the file."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


class Symbol(NamedTuple):
    """An entry of the table of symbols, in the order of the file."""

    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


@dataclass(frozen=True)
class ObjectFile:
    """The tables of an object."""

    code: bytes
    sections: list[Section]
    names: list[str]
    symbols: list[Symbol]
    strings: int
    """Where the names of symbols begin."""

    def text(self, symbol: Symbol) -> str:
        """The name of a symbol."""
        return _text(self.code, self.strings + symbol.name)


def read_object(code: bytes) -> ObjectFile:
    """Read the tables of an object."""
    if code[:6] != MAGIC or len(code) < 64 or struct.unpack_from("<HH", code, 16) != (RELOCATABLE, X86_64):
        raise UnsupportedObject("not an object for x86-64")
    (start,) = struct.unpack_from("<Q", code, 40)
    _, count, naming = struct.unpack_from("<HHH", code, 58)
    sections = [Section(*struct.unpack_from("<IIQQQQIIQQ", code, start + 64 * n)) for n in range(count)]
    names = [_text(code, sections[naming].offset + one.name) for one in sections]
    table = next(one for one in sections if one.kind == SYMBOLS)
    places = range(table.offset, table.offset + table.size, 24)
    symbols = [Symbol(*struct.unpack_from("<IBBHQQ", code, place)) for place in places]
    return ObjectFile(code, sections, names, symbols, sections[table.link].offset)


def load_function(code: bytes, name: str) -> int:
    """Put an object into memory, for as long as the process runs; return the address of one of its functions."""
    found = read_object(code)
    places, fixed, size = _lay_out(found)
    own = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, size, flags=own, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for number, section in enumerate(found.sections):
        if number in places and section.kind != NO_BITS:
            memory[places[number] : places[number] + section.size] = code[section.offset :][: section.size]
    addresses = [_address(found, number, base, places) for number in range(len(found.symbols))]
    for section, title in zip(found.sections, found.names, strict=True):
        if section.kind == RELOCATIONS and section.info in places:
            _relocate(found, section, memory, places[section.info], addresses, title)
    if fixed and _libc().mprotect(base, fixed, mmap.PROT_READ | mmap.PROT_EXEC):
        raise UnsupportedObject("the system allows no new machine code")
    function = next((n for n, one in enumerate(found.symbols) if found.text(one) == name), None)
    if function is None or not addresses[function]:
        raise UnsupportedObject(f"no function {name}")
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))  # never unmapped: threads may run it while the process ends
    return addresses[function]


@cache
def code_allowed() -> bool:
    """Whether the system lets this process turn memory that it has written into machine code."""
    memory = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return not _libc().mprotect(base, PAGE, mmap.PROT_READ | mmap.PROT_EXEC)


def _lay_out(found: ObjectFile) -> tuple[dict[int, int], int, int]:
    """Offsets of sections (and of common symbols, by −1 − number), the size of what is fixed, and the whole size."""
    places: dict[int, int] = {}
    kept = [
        (number, one)
        for number, one in enumerate(found.sections)
        if one.flags & ALLOCATED and one.size and found.names[number] not in UNWINDING
    ]
    at = fixed = 0
    for writable in (False, True):
        for number, section in kept:
            if bool(section.flags & WRITABLE) == writable:
                places[number] = at = _aligned(at, section.alignment)
                at += section.size
        if not writable:
            fixed = at = _aligned(at, PAGE)
    for number, symbol in enumerate(found.symbols):
        if symbol.section == COMMON:
            places[-1 - number] = at = _aligned(at, symbol.value)
            at += symbol.size
    return places, fixed, max(_aligned(at, PAGE), PAGE)


def _address(found: ObjectFile, number: int, base: int, places: dict[int, int]) -> int:
    """The address of a symbol; 0 for one that is not in memory."""
    symbol = found.symbols[number]
    if symbol.section == COMMON:
        return base + places[-1 - number]
    if symbol.section == UNDEFINED:
        return _outside(found.text(symbol)) if symbol.name else 0
    return base + places[symbol.section] + symbol.value if symbol.section in places else 0


def _outside(name: str) -> int:
    """The address of a function of the C library."""
    function = getattr(_libc(), name, None)
    address = 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value
    if not address:
        raise UnsupportedObject(f"{name} is not in the C library")
    return address


def _relocate(
    found: ObjectFile, section: Section, memory: mmap.mmap, place: int, addresses: list[int], title: str
) -> None:
    """Write the addresses that a section needs."""
    for at in range(section.offset, section.offset + section.size, 24):
        offset, info, plus = struct.unpack_from("<QQq", found.code, at)
        kind, symbol = info & 0xFFFFFFFF, info >> 32
        if kind != ADDRESS or not addresses[symbol]:
            raise UnsupportedObject(f"relocation {kind} in {title}")
        struct.pack_into("<Q", memory, place + offset, addresses[symbol] + plus)


@cache
def _libc() -> Any:
    """The functions of this process, the C library's among them."""
    library = ctypes.CDLL(None)
    library.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return library


def _text(code: bytes, start: int) -> str:
    return code[start : code.index(b"\0", start)].decode()


def _aligned(at: int, alignment: int) -> int:
    return -(-at // max(alignment, 1)) * max(alignment, 1)
