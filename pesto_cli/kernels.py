"""Kernels: functions that numba compiles at their first call, and the cache of machine code.

numba writes its cache next to the sources or into the user's cache folder: for every function an
index (`.nbi`) and machine code (`.nbc`). It does not check these files, and fails on a file that a
crash or a full disk has truncated. The cache of this module stores a hash with the machine code,
and compiles again if a file is damaged.
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
"""Escape sequences for bold or coloured text, which numba puts into its messages."""


def kernel(function: Callable[..., Any]) -> Any:
    """Return a function that is compiled for each combination of argument types of its calls.

    It runs without the interpreter's lock. If no folder is writable, every process compiles it.
    """
    # Set explicitly, because a kernel inherits these two options from a step that calls it.
    compiled: Any = njit(nogil=True, _nrt=True, forceinline=False)(function)
    if not config.DISABLE_JIT:
        with suppress(RuntimeError):  # no folder is writable
            compiled._cache = _CheckedCache(function)
    return compiled


def step(function: Callable[..., Any]) -> Any:
    """Return a function that is inlined into kernels; only kernels and other steps can call it.

    A step must not make or return arrays. Then numba counts no references to its arguments (as in
    `numba.misc.mergesort`), and arguments that are tuples of many arrays cost nothing.
    """
    return njit(nogil=True, _nrt=False, forceinline=True, no_cpython_wrapper=True)(function)


def address_of(function: Any, *values: Any) -> Any:
    """Return the address of a kernel compiled for arguments of these types, for `call_at`.

    The kernel must return nothing. Without compilation, the function itself is returned.

    Raises:
        EnvironmentFailedError: the kernel cannot be compiled for these types, or returns a value.
    """
    if config.DISABLE_JIT:
        return function
    try:
        if not isinstance(function, Dispatcher):
            raise TypingError("it is not a function of numba.njit")
        types = tuple(typeof(value) for value in values)
        compiled = function.get_compile_result(none(*types))
        if compiled.signature.return_type != none:
            raise TypingError(f"it returns {compiled.signature.return_type}, nothing was expected")
    except NumbaError as error:
        words = " ".join(STYLE.sub("", str(error)).split())
        name = getattr(function, "__name__", repr(function))
        raise EnvironmentFailedError(
            f"{getattr(function, '__module__', '')}.{name} cannot be compiled; fix it or "
            f"uninstall its package: {words}"
        ) from None
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)


def _call_at(typing_context: Any, address: Any, values: Any) -> Any:
    """Call the kernel at an address from another kernel; `values` must have its argument types.

    The calling kernel is then compiled once for all functions that it may call. A kernel that takes
    functions as arguments would be compiled again for each of them.
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
    """Return the kernels and steps of all loaded modules of pesto, by name."""
    # Copies: another thread may import a module meanwhile.
    modules = sys.modules.copy().items()
    loaded = [module for name, module in modules if name.startswith("pesto_cli")]
    values = [value for module in loaded for value in vars(module).copy().values()]
    every = [value for value in values if isinstance(value, Dispatcher)]
    return {f"{each.py_func.__module__}.{each.py_func.__name__}": each for each in every}


def are_cached() -> bool:
    """Return whether the cache has every kernel of the loaded modules."""
    return all(
        isinstance(each._cache, _CheckedCache) and each._cache.has_one_for(each.targetctx)
        for each in kernels().values()
        if not each.targetoptions["forceinline"]
    )


def _files(module: dict[str, Any]) -> set[str]:
    """Return the file of a module, and the files from which it imports kernels, steps and tuples.

    numba itself checks only the module's own file, and would use a cached kernel after the source
    of an inlined step has changed.
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


class _HashedCode(CompileResultCacheImpl):  # type: ignore[misc]
    """Machine code, stored with its hash."""

    def reduce(self, cres: Any) -> Any:
        data = dumps(super().reduce(cres))
        return sha256(data).digest(), data

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        digest, data = payload
        if sha256(data).digest() != digest:
            raise ValueError("the file is damaged")
        return super().rebuild(target_context, pickle.loads(data))


class _CheckedCache(FunctionCache):  # type: ignore[misc]
    """numba's cache of one function, in which a file that cannot be read counts as missing."""

    _impl_class = _HashedCode

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._has_one = False
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
            with suppress(OSError):  # if it fails again, the next process compiles
                self.flush()
                super().save_overload(sig, data)

    def has_one_for(self, target_context: Any) -> bool:
        """Return whether the index lists machine code for this source and this processor.

        Once it does, it is not read again.
        """
        if self._has_one:
            return True
        try:
            overloads = self._cache_file._load_index()
        except Exception:
            return False
        processor = target_context.codegen().magic_tuple()
        self._has_one = any(processor == each for _, each, _ in overloads)
        return self._has_one
