"""The columns of a profile in its file; docs/schemas has them as JSON Schema."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from pesto_cli.files.machine import MachineSchema
from pesto_cli.files.parts import PartsSchema
from pesto_cli.files.repeated import ShapeColumn, TextColumn
from pesto_cli.files.storage import Extensible

NEWEST = 2
# Far above any tensor, and low enough that the sum over a graph fits into an int64.
MAX_TENSOR_BYTES = 2**45

Cost = float | None
_NonNegativeCost = Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
_Bytes = Annotated[int, Field(ge=0, le=MAX_TENSOR_BYTES)]
_Index = Annotated[int, Field(ge=-1, lt=2**31)]  # OpGraph refuses -1 with a better message


class OpsSchema(Extensible):
    """Columns with one entry for each op."""

    name: list[str]
    """Unique; a path of scopes with `/` between them."""
    time_us: dict[str, list[Cost]]
    """By device kind, at speed 1; null where this kind cannot run the op."""
    type: list[str] | None = None
    """Op types, for people to read."""
    role: TextColumn | None = None
    """`compute`, `feed`, `fetch`, `variable` or `update`."""
    phase: TextColumn | None = None
    """`forward`, `backward` or `update`."""
    compound: TextColumn | None = None
    """For an op that stands for a body of ops: `loop`, `conditional` or `call`; else null."""
    scope: TextColumn | None = None
    """The scopes of the model that an op belongs to; null if they are the scopes in its name."""
    repetition: TextColumn | None = None
    """The scopes that distinguish repetitions of the same ops (`step_3`), or null."""
    forward_op: TextColumn | None = None
    """Name of the op whose gradient an op computes, or null."""
    inputs: list[list[_Index | None]] | None = None
    """The input tensors of an op by slot; null for an input that is no tensor of the profile."""
    colocation_group: list[int | str | None] | None = None
    """Ops of one group share a device; null for a group of one op."""
    resident_bytes: list[_Bytes] | None = None
    """Bytes held throughout the step: variables and slots."""
    alias_of: list[_Index | None] | None = None
    """The op whose memory holds the outputs, or null."""
    members: list[list[str]] | None = None
    """Of a coarse profile: the ops in each node."""
    program_device: list[str | None] | None = None
    """The device that the program assigned to the op: a shell pattern of device names, or null."""
    runs: list[Annotated[int, Field(ge=0, lt=2**31)]] | None = None
    """Measured: the number of steps in which the op ran."""
    min_us: dict[str, list[_NonNegativeCost]] = {}
    """Measured, by device kind: the least time."""
    mean_us: dict[str, list[_NonNegativeCost]] = {}
    """Measured, by device kind: the mean."""
    std_us: dict[str, list[_NonNegativeCost]] = {}
    """Measured, by device kind: the standard deviation of the population."""


class TensorsSchema(Extensible):
    """Columns with one entry for each tensor, which is one output of an op."""

    producer: list[_Index]
    """Ascending."""
    bytes: list[_Bytes]
    """Size of the data."""
    consumers: list[list[_Index]]
    """The ops that consume the tensor."""
    consumer_on_host: list[list[bool]] | None = None
    """For each consumer, whether the data is in host memory at both endpoints (a signal)."""
    shape: ShapeColumn | None = None
    """Sizes of the dimensions, null for an open one; null if their number is unknown."""
    dtype: TextColumn | None = None
    """Type of the elements, such as `float32`, or null."""


class ProfileSchema(Extensible):
    """A problem in one self-contained file: op times, the graph, the machine."""

    model_config = ConfigDict(title="pesto-profile")

    format: Literal["pesto-profile"]
    version: Literal[1, 2]
    """For version 1, `role` to `forward_op` are derived from TensorFlow's op types and names."""
    provenance: dict[str, Any] = {}
    """For the record: hash of the graph, versions, source of the op times."""
    machine: MachineSchema
    ops: OpsSchema
    tensors: TensorsSchema
    control_edges: list[Annotated[list[_Index], Field(min_length=2, max_length=2)]] = []
    """Pairs of ops: before, after."""
    parts: PartsSchema | None = None
    """The prices of parts of ops, if they were asked for."""
