"""Functions that numba compiles when they are first called, and how the compiled ones are kept.

numba keeps them beside the sources, or in the user's cache: for every function an index (`.nbi`)
and its machine code (`.nbc`). It trusts these files, and fails on one that a crash or a full disk
has cut short. Here the machine code goes with its hash, and what is damaged is compiled again.
"""

import pickle
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import config, njit, typeof
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.cgutils import if_unlikely, unpack_tuple
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError, TypingError
from numba.core.serialize import dumps
from numba.core.types import none
from numba.extending import intrinsic

from pesto_cli.errors import EnvironmentFailedError

STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""Has a terminal write bold or in colour, as numba does."""


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function for each combination of argument types that it is called with.

    It runs without the interpreter's lock. Where numba can write nowhere, every process compiles.
    """
    # Without these two, it would take over what the step has that calls it.
    compiled: Any = njit(nogil=True, _nrt=True, forceinline=False)(function)
    if not config.DISABLE_JIT:
        with suppress(RuntimeError):  # there is no folder to write to
            compiled._cache = _Kept(function)
    return compiled


def step(function: Callable[..., Any]) -> Any:
    """A part of kernels, put in place of its calls; only kernels and other steps can call it.

    It makes no arrays and returns none, so numba counts no references to its arguments (as in
    `numba.misc.mergesort`). So it costs nothing to pass it tuples of many arrays.
    """
    return njit(nogil=True, _nrt=False, forceinline=True, no_cpython_wrapper=True)(function)


def address_of(function: Any, *values: Any) -> Any:
    """Where a kernel that returns nothing lies, compiled for such values; for `call_at`.

    Raises:
        EnvironmentFailedError: it cannot be compiled for these, or returns something.
    """
    if config.DISABLE_JIT:
        return function
    try:
        if not isinstance(function, Dispatcher):
            raise TypingError("it is no function of numba.njit")
        types = tuple(typeof(value) for value in values)
        compiled = function.get_compile_result(none(*types))
        if compiled.signature.return_type != none:
            raise TypingError(f"it returns {compiled.signature.return_type}, nothing was expected")
    except NumbaError as error:
        words = " ".join(STYLE.sub("", str(error)).split())
        name = getattr(function, "__name__", repr(function))
        raise EnvironmentFailedError(
            f"{getattr(function, '__module__', '')}.{name} cannot be compiled, mend it or "
            f"uninstall its package: {words}"
        ) from None
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)


def _call_at(typing_context: Any, address: Any, values: Any) -> Any:
    """Call the kernel at an address, within another kernel; values are of the types it is for.

    So the other kernel is compiled once, whatever it calls: numba compiles a kernel that calls
    functions by name anew for each of them.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        types, convention = values.types, context.call_conv
        kind = convention.get_function_type(none, types).as_pointer()
        status, nothing = convention.call_function(
            builder,
            builder.inttoptr(arguments[0], kind),
            none,
            types,
            unpack_tuple(builder, arguments[1]),
        )
        with if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return nothing

    return none(address, values), generate


def _call(function: Any, values: Any) -> None:
    function(*values)


call_at = _call if config.DISABLE_JIT else intrinsic(_call_at)


def kernels() -> dict[str, Any]:
    """The kernels and steps of all modules that are loaded, by name."""
    modules = [module for name, module in sys.modules.items() if name.startswith("pesto_cli")]
    values = [value for module in modules for value in vars(module).values()]
    every = [value for value in values if isinstance(value, Dispatcher)]
    return {f"{each.py_func.__module__}.{each.py_func.__name__}": each for each in every}


def are_kept() -> bool:
    """Whether no kernel of the modules that are loaded has to be compiled."""
    return all(
        isinstance(each._cache, _Kept) and each._cache.has_one_for(each.targetctx)
        for each in kernels().values()
        if not each.targetoptions["forceinline"]
    )


def _files(module: dict[str, Any]) -> set[str]:
    """The file of a module with kernels, and those it has kernels, steps and tuples from.

    numba itself looks at the one file alone, and a kernel would outlive the steps that it contains.
    """
    files = {module["__file__"]}
    for value in list(module.values()):
        if isinstance(value, Dispatcher):
            used = value.py_func.__globals__
        elif (
            isinstance(value, type) and issubclass(value, tuple) and value.__module__ in sys.modules
        ):
            used = vars(sys.modules[value.__module__])
        else:
            continue
        if used.get("__file__", module["__file__"]) not in files:
            files |= _files(used)
    return files


class _Sealed(CompileResultCacheImpl):  # type: ignore[misc]
    """Machine code with its hash."""

    def reduce(self, cres: Any) -> Any:
        data = dumps(super().reduce(cres))
        return sha256(data).digest(), data

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        digest, data = payload
        if sha256(data).digest() != digest:
            raise ValueError("the file is damaged")
        return super().rebuild(target_context, pickle.loads(data))


class _Kept(FunctionCache):  # type: ignore[misc]
    """numba's cache of one function, but what cannot be read is not there."""

    _impl_class = _Sealed

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        files = sorted(_files(function.__globals__))
        self._cache_file._source_stamp = [
            sha256(Path(file).read_bytes()).digest() for file in files
        ]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # damaged bytes can raise anything
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception:  # the index is damaged, or the disk is full
            with suppress(OSError):  # then the next process compiles again
                self.flush()
                super().save_overload(sig, data)

    def has_one_for(self, target_context: Any) -> bool:
        """Whether the index knows of machine code for this source and this processor."""
        try:
            overloads = self._cache_file._load_index()
        except Exception:
            return False
        processor = target_context.codegen().magic_tuple()
        return any(processor == each for _, each, _ in overloads)
