"""Functions that the parts of calls run: those of the calls, for arguments of any size.

TensorFlow notes the shapes of a function's arguments and tensors where it is traced. Parts pass
smaller arguments, so the copies have no such notes.
"""

from collections.abc import Iterable
from typing import Any

NOTED_SHAPES = ("_output_shapes", "_input_shapes")


def name_for_parts(function: str) -> str:
    """Return the name of the copy of a function."""
    return f"{function}_of_parts"


def add_functions_of_parts(library: Any, names: Iterable[str]) -> None:
    """Add copies of functions, and of those that they call, to a function library, in place."""
    functions = {function.signature.name: function for function in library.function}
    waiting, copied = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in copied or name not in functions:
            continue
        copied.add(name)
        copy = library.function.add()
        copy.CopyFrom(functions[name])
        copy.signature.name = name_for_parts(name)
        for each in (copy, *copy.arg_attr.values(), *copy.node_def):
            for noted in NOTED_SHAPES:
                each.attr.pop(noted, None)
        for node in copy.node_def:
            called = node.attr["f"].func.name if "f" in node.attr else ""
            if called in functions:
                waiting.append(called)
                node.attr["f"].func.name = name_for_parts(called)
