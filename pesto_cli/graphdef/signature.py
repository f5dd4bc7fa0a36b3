"""Find the inputs and outputs of nodes from their OpDefs and attributes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pesto_cli.errors import BadInputError, InfeasibleError


@dataclass(frozen=True)
class Argument:
    """One input or output tensor of a node.

    name: the name of the OpDef's argument. A list argument is several tensors with one name.
    dtype: a number of TensorFlow's `DataType`, never a reference type; 0 if a function body leaves
        the type open.
    """

    name: str
    dtype: int
    is_ref: bool


@dataclass(frozen=True)
class Signature:
    """The tensors of a node, in the order of its inputs and outputs."""

    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]


class OpDefs:
    """The op types that a graph may use: those of TensorFlow and the functions of its library."""

    def __init__(self, library: Any) -> None:
        self.functions = {function.signature.name: function for function in library.function}
        self._op_defs: dict[str, Any] = {}
        self._sized_by: dict[str, tuple[str, ...]] = {}
        self._signatures: dict[tuple[object, ...], Signature] = {}

    def of(self, node: Any) -> Any:
        """Return the OpDef of a NodeDef.

        Raises:
            InfeasibleError: the type is unknown, so no device can run it.
        """
        if node.op not in self._op_defs:
            self._op_defs[node.op] = self._find(node)
        return self._op_defs[node.op]

    def signature(self, node: Any) -> Signature:
        """Return the input and output tensors of a NodeDef."""
        op_def = self.of(node)
        if node.op not in self._sized_by:
            self._sized_by[node.op] = _argument_attributes(op_def)
        sized_by = self._sized_by[node.op]
        key = (node.op, *(self._sizes(node, name) for name in sized_by))
        if key not in self._signatures:
            attributes = dict(zip(sized_by, key[1:], strict=True))
            self._signatures[key] = Signature(
                _arguments(op_def.input_arg, attributes), _arguments(op_def.output_arg, attributes)
            )
        return self._signatures[key]

    def attribute(self, node: Any, name: str) -> Any:
        """Return an AttrValue of a NodeDef, else the default in its OpDef, else None."""
        if name in node.attr:
            return node.attr[name]
        for attr in self.of(node).attr:
            if attr.name == name and attr.HasField("default_value"):
                return attr.default_value
        return None

    def _sizes(self, node: Any, name: str) -> tuple[Any, ...] | None:
        """Return the numbers in an attribute with a count or types of tensors; None if open."""
        found = values(self.attribute(node, name))
        if found is not None and not all(isinstance(number, int) for number in found):
            raise BadInputError(
                f"node {node.name!r} ({node.op}) has an attribute {name} of the wrong kind; a data "
                "type or a number was expected: export the graph again."
            )
        return found

    def _find(self, node: Any) -> Any:
        from tensorflow.python.framework import op_def_registry

        if node.op in self.functions:
            return self.functions[node.op].signature
        op_def = op_def_registry.get(node.op)
        if op_def is None:
            raise InfeasibleError(
                f"op {node.name!r} has the type {node.op}, which this TensorFlow does not have, so "
                "no device can run it; a registered type was expected: export the graph without it."
            )
        return op_def


def values(attribute: Any) -> tuple[Any, ...] | None:
    """Return the elements of a list AttrValue, else its one value; None if open or missing."""
    if attribute is None:
        return None
    kind = attribute.WhichOneof("value")
    if kind in (None, "placeholder"):
        return None
    if kind == "list":
        return tuple(item for _, items in attribute.list.ListFields() for item in items)
    return (getattr(attribute, kind),)


def _argument_attributes(op_def: Any) -> tuple[str, ...]:
    names = (
        name
        for argument in (*op_def.input_arg, *op_def.output_arg)
        for name in (argument.type_attr, argument.number_attr, argument.type_list_attr)
        if name
    )
    return tuple(dict.fromkeys(names))


def _arguments(op_def_arguments: Sequence[Any], attributes: dict[str, Any]) -> tuple[Argument, ...]:
    """Expand list arguments: `number_attr` repeats one type, `type_list_attr` lists types."""
    expanded: list[Argument] = []
    for argument in op_def_arguments:
        if argument.type_list_attr:
            dtypes = attributes[argument.type_list_attr] or ()
        else:
            dtypes = (attributes[argument.type_attr] or (0,)) if argument.type_attr else None
            number = (attributes[argument.number_attr] or (0,)) if argument.number_attr else (1,)
            dtypes = (dtypes or (argument.type,)) * number[0]
        expanded += [Argument(argument.name, dtype, argument.is_ref) for dtype in dtypes]
    return tuple(expanded)


def dtype_names(tensors: Sequence[Argument]) -> str:
    """Return the types of tensors as text for a message."""

    def name(tensor: Argument) -> str:
        dtype = data_type(tensor.dtype)
        return f"no type ({tensor.dtype})" if dtype is None else str(dtype.name)

    return ", ".join(name(tensor) if tensor.dtype else "any" for tensor in tensors) or "none"


def data_type(number: int) -> Any:
    """Return TensorFlow's type for a number of `DataType`; None if the number has no type."""
    from tensorflow.dtypes import as_dtype

    try:
        return as_dtype(number)
    except TypeError:
        return None


def constant_value(node: Any) -> Any:
    """Return the numpy array of a Const node.

    Raises:
        BadInputError: the value is damaged.
    """
    from tensorflow import make_ndarray

    try:
        return make_ndarray(node.attr["value"].tensor)
    except (TypeError, ValueError) as error:
        raise BadInputError(
            f"the value of constant {node.name!r} is damaged ({error}); a tensor as TensorFlow "
            "writes it was expected: export the graph again."
        ) from error


def node_type(node: Any, attribute: str) -> Any:
    """Return the data type in an attribute of a NodeDef.

    Raises:
        BadInputError: the attribute is missing or has no valid type.
    """
    number = node.attr[attribute].type if attribute in node.attr else 0
    dtype = data_type(number)
    if dtype is None:
        raise BadInputError(
            f"node {node.name!r} ({node.op}) has {number or 'nothing'} as its {attribute}, where a "
            "data type was expected: export the graph again."
        )
    return dtype
