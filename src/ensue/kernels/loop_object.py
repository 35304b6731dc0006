"""Turns a loop that numba compiled into an object file that needs nothing of numba or Python.

numba's C function reports exceptions through Python, and its arrays are counted by numba's runtime. Neither exists in a
process that has only the machine code. So the object has an entry of its own, and its own two functions that allocate
and free arrays; what remains is in the C library. A loop that fails, which it does where memory is exhausted, ends the
process: the other threads would wait for it for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba.core import types
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.registry import cpu_target

from ensue.kernels.loops import ENTRY

BYTES, INT32, INT64 = ir.IntType(8).as_pointer(), ir.IntType(32), ir.IntType(64)
HEADER = ir.LiteralStructType([INT64, BYTES, BYTES, BYTES, INT64, BYTES])
"""numba's MemInfo: references, destructor, its argument, data, size, allocator."""
DATA, HEADER_SIZE = 3, 48
NONE = -2
"""numba's status of a function that returns None; 0 is that of any other result."""
FAILED = "ensue: a compiled loop failed, probably for lack of memory\n\0"


class _Compiler(_FunctionCompiler):  # type: ignore[misc]
    """Compiles a function without entries for Python or C."""

    def _customize_flags(self, flags: Any) -> Any:
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
        flags.enable_pyobject = flags.enable_looplift = False
        return flags


def emit_object(function: Callable[..., None], argument: Any, options: dict[str, Any]) -> bytes:
    """The object of a function of one ``argument`` (numba's type of a pointer), compiled with numba's ``options``.

    This is what ``library.finalize`` does, without handing the module to LLVM's JIT compiler: generating code changes a
    module, and code that is generated from it once more is slower.
    """
    compiler = _Compiler(function, cpu_target, options, {}, Compiler)
    with global_compiler_lock:
        result = compiler.compile((argument,), types.void)
        library = result.library
        module = library._final_module
        for other in dict.fromkeys(library._linking_libraries):
            module.link_in(other._get_module_for_linking(), preserve=True)
        library._optimize_final_module()
        module.link_in(binding.parse_assembly(str(_runtime(result.fndesc.llvm_func_name))))
        module.verify()
        return bytes(library.codegen._tm.emit_object(module))


def _runtime(native: str) -> Any:
    """A module with the entry, which calls the function ``native``, and with the runtime of arrays."""
    module = ir.Module("ensue_runtime")
    _entry(module, native)
    _allocate(module)
    _free(module)
    return module


def _declare(module: Any, name: str, returned: Any, *arguments: Any) -> Any:
    return ir.Function(module, ir.FunctionType(returned, arguments), name)


def _entry(module: Any, native: str) -> None:
    """void ENTRY(int64 *a): call the loop, and end the process if it fails."""
    failed = ir.GlobalVariable(module, ir.ArrayType(ir.IntType(8), len(FAILED)), "ensue_failed")
    failed.global_constant, failed.linkage = True, "internal"
    failed.initializer = ir.Constant(failed.value_type, bytearray(FAILED.encode()))
    write = _declare(module, "write", INT64, INT32, BYTES, INT64)
    abort = _declare(module, "abort", ir.VoidType())
    pointers = BYTES.as_pointer()
    called = _declare(module, native, INT32, pointers, pointers, INT64.as_pointer())
    entry = _declare(module, ENTRY, ir.VoidType(), INT64.as_pointer())
    b = ir.IRBuilder(entry.append_basic_block())
    status = b.call(called, [b.alloca(BYTES), b.alloca(BYTES), entry.args[0]])
    fine = b.or_(b.icmp_signed("==", status, INT32(0)), b.icmp_signed("==", status, INT32(NONE)))
    with b.if_then(b.not_(fine), likely=False):
        b.call(write, [INT32(2), b.bitcast(failed, BYTES), INT64(len(FAILED) - 1)])
        b.call(abort, [])
    b.ret_void()


def _allocate(module: Any) -> None:
    """MemInfo *NRT_MemInfo_alloc_aligned(size, alignment): one block holds the header and the data."""
    malloc = _declare(module, "malloc", BYTES, INT64)
    function = _declare(module, "NRT_MemInfo_alloc_aligned", BYTES, INT64, INT32)
    size, alignment = function.args
    b = ir.IRBuilder(function.append_basic_block())
    above = b.zext(alignment, INT64)
    block = b.call(malloc, [b.add(b.add(size, INT64(HEADER_SIZE)), above)])
    with b.if_then(b.icmp_unsigned("==", block, BYTES(None)), likely=False):
        b.ret(block)
    end = b.add(b.ptrtoint(block, INT64), b.add(INT64(HEADER_SIZE - 1), above))
    data = b.inttoptr(b.and_(end, b.neg(above)), BYTES)
    header = b.bitcast(block, HEADER.as_pointer())
    for number, value in enumerate((INT64(1), BYTES(None), BYTES(None), data, size, BYTES(None))):
        b.store(value, b.gep(header, [INT32(0), INT32(number)]))
    b.ret(block)


def _free(module: Any) -> None:
    """void NRT_MemInfo_call_dtor(MemInfo *): no references are left."""
    free = _declare(module, "free", ir.VoidType(), BYTES)
    function = _declare(module, "NRT_MemInfo_call_dtor", ir.VoidType(), BYTES)
    b = ir.IRBuilder(function.append_basic_block())
    b.call(free, [function.args[0]])
    b.ret_void()
