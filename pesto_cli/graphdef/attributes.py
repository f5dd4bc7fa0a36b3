"""Convert the attributes of NodeDefs to plain values and back."""

from collections.abc import Callable, Mapping
from typing import Any

from pesto_cli.data.specs import Value
from pesto_cli.graphdef.signature import data_type
from pesto_cli.graphdef.tensorflow import tensorflow

UNKNOWN_RANK = "unknown"
"""The value of a shape attribute without a number of dimensions."""

_NAMES = frozenset({"container", "debug_name", "shared_name"})
"""Attributes that name the resource of an op, such as a variable: they do not change its work."""

AttributesKey = tuple[tuple[str, bytes], ...]


def attributes_key(node: Any) -> AttributesKey:
    """Return a key that is equal for NodeDefs with equal attributes, as in `OpSpec.attributes`."""
    return tuple(
        (name, node.attr[name].SerializeToString()) for name in sorted(node.attr) if _counts(name)
    )


def plain_attributes(node: Any, op_def: Any) -> tuple[tuple[str, Value], ...]:
    """Return the attributes of a NodeDef as in `OpSpec.attributes`, with defaults of the OpDef."""
    defaults = {
        attr.name: attr.default_value for attr in op_def.attr if attr.HasField("default_value")
    }
    found = {
        name: plain_value(attribute)
        for name, attribute in {**defaults, **node.attr}.items()
        if _counts(name)
    }
    return tuple(sorted((name, value) for name, value in found.items() if value is not None))


def _counts(name: str) -> bool:
    return not name.startswith("_") and name not in _NAMES


def plain_value(attribute: Any) -> Value | None:
    """Return an AttrValue as a plain value; None for functions, tensors and placeholders."""
    kind = attribute.WhichOneof("value")
    if kind == "list":
        kinds = [(field.name, items) for field, items in attribute.list.ListFields()]
        return tuple(
            _PLAIN[kind](item) for kind, items in kinds if kind in _PLAIN for item in items
        )
    return _PLAIN[kind](getattr(attribute, kind)) if kind in _PLAIN else None


def attr_value(kind: str, value: Value) -> Any:
    """Return a plain value as an AttrValue; kind: the type of the attribute in its OpDef.

    Raises:
        ValueError: the value does not have this type.
    """
    tensorflow()
    from tensorflow.core.framework.attr_value_pb2 import AttrValue

    name = kind.removeprefix("list(").removesuffix(")")
    if name not in _FIELDS:
        raise ValueError(f"attributes of type {kind} cannot be written")
    field, convert = _FIELDS[name]
    found = AttrValue()
    try:
        if kind == name:
            _put(found, field, convert(value))
        else:
            found.list.SetInParent()
            getattr(found.list, field).extend(convert(item) for item in value)  # type: ignore[union-attr]
    except TypeError as error:
        raise ValueError(f"{value!r} is no attribute of type {kind} ({error})") from error
    return found


def _put(found: Any, field: str, value: Any) -> None:
    if field == "shape":
        found.shape.CopyFrom(value)
    else:
        setattr(found, field, value)


def _plain_shape(shape: Any) -> Value:
    return UNKNOWN_RANK if shape.unknown_rank else tuple(dim.size for dim in shape.dim)


def _plain_type(number: int) -> Value:
    dtype = data_type(number)
    return number if dtype is None else str(dtype.name)


def _shape_proto(value: Any) -> Any:
    from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto

    if value == UNKNOWN_RANK:
        return TensorShapeProto(unknown_rank=True)
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in value])


def _type_number(value: Any) -> int:
    if isinstance(value, int):
        return value
    number: int = tensorflow().dtypes.as_dtype(value).as_datatype_enum
    return number


_PLAIN: Mapping[str, Callable[[Any], Value]] = {
    "s": lambda text: text.decode(errors="backslashreplace"),
    "i": int,
    "f": float,
    "b": bool,
    "type": _plain_type,
    "shape": _plain_shape,
}
# Type in an OpDef -> field of an AttrValue, conversion of a plain value.
_FIELDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "string": ("s", lambda text: text.encode()),
    "int": ("i", int),
    "float": ("f", float),
    "bool": ("b", bool),
    "type": ("type", _type_number),
    "shape": ("shape", _shape_proto),
}
