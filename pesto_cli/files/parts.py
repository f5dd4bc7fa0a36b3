"""The section of a profile with the prices of parts."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from pesto_cli.data.columns import check_length
from pesto_cli.data.graph import FloatArray, OpGraph
from pesto_cli.data.parts import BytePrice, Parts, PartTimes, check_numbers
from pesto_cli.data.specs import (
    ARGUMENT,
    ELEMENT_BYTES,
    Body,
    BodyOp,
    Operand,
    OpSpec,
    Taken,
    Value,
)
from pesto_cli.errors import BadInputError, about
from pesto_cli.files.repeated import Sizes
from pesto_cli.files.storage import Extensible

_Index = Annotated[int, Field(ge=0, lt=2**31)]
_Cost = Annotated[float, Field(allow_inf_nan=False)] | None
_Ratio = Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
# Infinity, which JSON does not have, as the value of a constant or attribute.
INFINITE = {"number": "inf"}, {"number": "-inf"}


class OperandSchema(Extensible):
    """An input or output tensor of an op."""

    shape: Sizes | None = None
    """Sizes of the dimensions, null for an open one; null if their number is unknown."""
    dtype: str | None = None
    """Type of the elements, such as `float32`."""
    value: Any = None
    """Of a small constant: a number or nested lists; infinity is `{"number": "inf"}`."""
    on_host: bool = False
    """Whether the tensor is in host memory, also if the op runs on a GPU."""


class SpecSchema(Extensible):
    """The type, attributes and operands of an op."""

    type: str
    """Op type."""
    attributes: dict[str, Any] = {}
    """Values as texts, numbers and nested lists; a data type is its name."""
    inputs: list[_Index] = []
    """Indices into `operands`, by slot."""
    outputs: list[_Index] = []
    """Indices into `operands`."""
    is_stateful: bool = False
    """Whether the op has an effect or a state."""
    body: "BodySchema | None" = None
    """Of a call whose function can be split."""


_Taken = Annotated[list[int], Field(min_length=2, max_length=2)]


class BodyOpSchema(SpecSchema):
    """An op in the body of a function."""

    takes: list[_Taken] = []
    """By slot: index of an op of the body, -1 for the arguments, and number of its output."""


class BodySchema(Extensible):
    """The ops of a function, and its results."""

    ops: list[BodyOpSchema] = []
    """Each after those that it takes outputs of."""
    outputs: list[_Taken] = []
    """As in `takes`."""


class PartTimesSchema(Extensible):
    """The times of the parts of an op that is split in one way."""

    spec: _Index
    """Index into `specs`."""
    alternative: str
    """Name of the way to split the op."""
    size: Annotated[int, Field(ge=1)]
    """Extent of the dimension that is split, the largest number of parts."""
    ratio: dict[str, list[_Ratio]]
    """By kind, for each of `numbers`: time of a part / time of the op."""


class BytePriceSchema(Extensible):
    """An op that moves data: it takes the larger of `min_us` and `us + us_per_byte * bytes`."""

    type: str
    """Op type."""
    dtype: str
    """Type of the elements."""
    min_us: dict[str, _Cost]
    """By kind; null where it cannot run the op."""
    us: dict[str, _Cost]
    """By kind; null where it cannot run the op."""
    us_per_byte: dict[str, _Cost]
    """By kind, for each byte of inputs and outputs; null where it cannot run the op."""
    on_host: bool = False
    """Whether the outputs are in host memory, also if the op runs on a GPU."""


class PartsSchema(Extensible):
    """The prices of parts of ops, and of the ops that a rewriting adds."""

    numbers: list[_Index]
    """The numbers of parts that are priced, ascending."""
    operands: list[OperandSchema]
    """Distinct."""
    specs: list[SpecSchema]
    """Distinct."""
    spec_of: list[_Index | None]
    """For each op the index of its spec; null for an op that is no single node of the graph."""
    times: list[PartTimesSchema]
    """One entry for each spec and way to split it."""
    added: list[BytePriceSchema]
    """The prices of ops that a rewriting adds."""
    fallback: BytePriceSchema
    """The price of ops that are not in `added`."""
    targets: list[_Index] = []
    """The ops that are fetched as ops, such as the train op; by index."""


def parts_value(section: PartsSchema, names: Sequence[str], kinds: Sequence[str]) -> Parts:
    """Return the prices in a section; names: of the profile's ops, kinds: those with op times.

    Raises:
        BadInputError: an index is out of range, or a column has the wrong length.
    """
    check_length("parts.spec_of", len(section.spec_of), len(names))
    with about("parts"):
        check_numbers(section.numbers)
    specs = _specs(section)
    spec_of = [None if at is None else _at("spec_of", at, len(specs)) for at in section.spec_of]
    return Parts(
        names=names,
        specs=specs,
        spec_of=np.array([-1 if at is None else at for at in spec_of], dtype=np.int64),
        numbers=tuple(section.numbers),
        times={
            (_at("times.spec", entry.spec, len(specs)), entry.alternative): PartTimes(
                entry.size, _ratio(entry, kinds, len(section.numbers))
            )
            for entry in section.times
        },
        added={(entry.type, entry.dtype): _byte_price(entry, kinds) for entry in section.added},
        fallback=_byte_price(section.fallback, kinds),
        targets=frozenset(_at("targets", at, len(names)) for at in section.targets),
    )


def check_specs(parts: Parts, graph: OpGraph) -> None:
    """Check that each op has as many inputs and outputs as its spec.

    Raises:
        BadInputError: an op has not.
    """
    rows = None if graph.inputs is None else [*graph.inputs.rows()]
    for op, index in enumerate(parts.spec_of.tolist()):
        if index >= 0:
            spec, num_outputs = parts.specs[index], len(graph.tensors_of(op))
            num_inputs = len(spec.inputs) if rows is None else len(rows[op])
            if (num_inputs, num_outputs) != (len(spec.inputs), len(spec.outputs)):
                raise BadInputError(
                    f"op {graph.names[op]!r} ({graph.types[op]}) has {num_inputs} inputs and "
                    f"{num_outputs} outputs, and its spec in parts.specs, {spec.type}, has "
                    f"{len(spec.inputs)} and {len(spec.outputs)}; equal numbers were expected: "
                    "profile the graph again."
                )


def check_dtypes(name: str, dtypes: Iterable[str | None]) -> None:
    """Raise BadInputError if a data type is unknown; name: of the column."""
    for dtype in dict.fromkeys(dtypes):
        if dtype is not None and dtype not in ELEMENT_BYTES:
            raise BadInputError(
                f"{name} has the data type {dtype!r}; a name of a TensorFlow type was expected, "
                "such as 'float32'."
            )


def _at(name: str, index: int, count: int) -> int:
    if index >= count:
        raise BadInputError(f"parts.{name} has {index}; an index below {count} was expected.")
    return index


def _specs(section: PartsSchema) -> tuple[OpSpec, ...]:
    check_dtypes("parts.operands.dtype", (each.dtype for each in section.operands))
    operands = [
        Operand(
            None if each.shape is None else tuple(each.shape),
            each.dtype,
            None if each.value is None else _value("operands.value", each.value),
            each.on_host,
        )
        for each in section.operands
    ]

    def chosen(name: str, places: Sequence[int]) -> tuple[Operand, ...]:
        return tuple(operands[_at(name, place, len(operands))] for place in places)

    def spec(each: SpecSchema) -> OpSpec:
        return OpSpec(
            each.type,
            tuple((name, _value(name, value)) for name, value in sorted(each.attributes.items())),
            chosen("specs.inputs", each.inputs),
            chosen("specs.outputs", each.outputs),
            each.is_stateful,
            None if each.body is None else body(each, each.body),
        )

    def body(call: SpecSchema, section: BodySchema) -> Body:
        ops: list[BodyOp] = []
        for each in section.ops:
            taken = _taken(len(call.inputs), ops, each.takes, len(each.inputs))
            ops.append(BodyOp(spec(each), taken))
        return Body(tuple(ops), _taken(len(call.inputs), ops, section.outputs, len(call.outputs)))

    return tuple(map(spec, section.specs))


def _taken(
    num_arguments: int, ops: Sequence[BodyOp], found: Sequence[Sequence[int]], count: int
) -> tuple[Taken, ...]:
    """Return results of the ops of a body, or its arguments."""
    check_length("parts.specs.body", len(found), count)
    num_outputs = {ARGUMENT: num_arguments}
    num_outputs |= {place: len(op.spec.outputs) for place, op in enumerate(ops)}
    for op, output in found:
        if not 0 <= output < num_outputs.get(op, 0):
            raise BadInputError(
                f"parts.specs.body takes output {output} of op {op}; an output of an earlier op of "
                f"the body, or {ARGUMENT} and the number of an argument, were expected."
            )
    return tuple((op, output) for op, output in found)


def _value(name: str, value: Any) -> Value:
    if isinstance(value, list):
        return tuple(_value(name, each) for each in value)
    if value in INFINITE:
        return float(value["number"])
    if isinstance(value, bool | int | float | str):
        return value
    raise BadInputError(
        f"parts: {name} is {str(value)[:60]}; a number, a text or a list of them was expected."
    )


def _ratio(entry: PartTimesSchema, kinds: Sequence[str], num_numbers: int) -> FloatArray:
    columns = _of_kinds("times.ratio", entry.ratio, kinds)
    for column in columns:
        check_length("parts.times.ratio", len(column), num_numbers)
    return np.array([[math.nan if each is None else each for each in row] for row in columns])


def _byte_price(entry: BytePriceSchema, kinds: Sequence[str]) -> BytePrice:
    tables = {name: getattr(entry, name) for name in ("min_us", "us", "us_per_byte")}
    columns = {
        name: np.array(
            [math.nan if cost is None else cost for cost in _of_kinds(name, table, kinds)]
        )
        for name, table in tables.items()
    }
    return BytePrice(**columns, on_host=entry.on_host)


def _of_kinds(name: str, table: Mapping[str, Any], kinds: Sequence[str]) -> list[Any]:
    if set(table) != set(kinds):
        raise BadInputError(
            f"parts: {name} has the kinds {', '.join(table) or 'none'}; those of ops.time_us, "
            f"{', '.join(kinds)}, were expected."
        )
    return [table[kind] for kind in kinds]


def parts_json(parts: Parts, kinds: Sequence[str]) -> dict[str, Any]:
    """Return prices as a section of a file."""
    place: dict[Operand, int] = {}
    return {
        "numbers": list(parts.numbers),
        "specs": [_spec_json(spec, place) for spec in parts.specs],
        "operands": [_operand_json(operand) for operand in place],
        "spec_of": [None if index < 0 else index for index in parts.spec_of.tolist()],
        "times": [
            {
                "spec": index,
                "alternative": name,
                "size": times.size,
                "ratio": {kind: _costs(row) for kind, row in zip(kinds, times.ratio, strict=True)},
            }
            for (index, name), times in parts.times.items()
        ],
        "added": [_price_json(*key, price, kinds) for key, price in parts.added.items()],
        "fallback": _price_json("", "", parts.fallback, kinds),
        "targets": sorted(parts.targets),
    }


def _spec_json(spec: OpSpec, place: dict[Operand, int]) -> dict[str, Any]:
    """Return a spec; its operands are added to `place`, which maps them to their indices."""
    body = {} if spec.body is None else {"body": _body_json(spec.body, place)}
    return {
        "type": spec.type,
        "attributes": {name: _json(value) for name, value in spec.attributes},
        "inputs": [place.setdefault(each, len(place)) for each in spec.inputs],
        "outputs": [place.setdefault(each, len(place)) for each in spec.outputs],
        **({"is_stateful": True} if spec.is_stateful else {}),
        **body,
    }


def _body_json(body: Body, place: dict[Operand, int]) -> dict[str, Any]:
    return {
        "ops": [_spec_json(op.spec, place) | {"takes": [*map(list, op.inputs)]} for op in body.ops],
        "outputs": [*map(list, body.outputs)],
    }


def _operand_json(operand: Operand) -> dict[str, Any]:
    return {
        "shape": operand.shape,
        "dtype": operand.dtype,
        **({} if operand.value is None else {"value": _json(operand.value)}),
        **({"on_host": True} if operand.on_host else {}),
    }


def _json(value: Value) -> Any:
    if isinstance(value, tuple):
        return [_json(each) for each in value]
    if isinstance(value, float) and math.isinf(value):
        return INFINITE[value < 0]
    return value


def _price_json(op_type: str, dtype: str, price: BytePrice, kinds: Sequence[str]) -> dict[str, Any]:
    return {
        "type": op_type,
        "dtype": dtype,
        **{
            name: dict(zip(kinds, _costs(getattr(price, name)), strict=True))
            for name in ("min_us", "us", "us_per_byte")
        },
        "on_host": price.on_host,
    }


def _costs(row: FloatArray) -> list[float | None]:
    return [None if math.isnan(cost) else cost for cost in row.tolist()]
