"""The columns of a placement in its file; docs/schemas has them as JSON Schema."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pesto_cli.files.plan import PartsSchema, PlanSchema
from pesto_cli.files.storage import Extensible, Schema


class _PlacedOpsSchema(Schema):
    """Columns with one entry for each op."""

    name: list[str]
    """Unique."""
    device: list[int]
    """Index into `devices`."""
    rank: list[int]
    """Position in the execution order of the device: from 0, without a gap."""


_Us = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Bytes = Annotated[int, Field(ge=0)]


class _LoadSchema(Schema):
    """The load of a schedule: its work, transfers and memory, summed over devices."""

    makespan_us: _Us
    num_ops: Annotated[int, Field(ge=0)]
    work_us: _Us
    sent_bytes: _Bytes
    peak_bytes: _Bytes


class _PredictedSchema(BaseModel):
    """Figures of the predicted schedule. Other keys are kept unchanged."""

    model_config = ConfigDict(extra="allow", strict=True)

    makespan_us: _Us | None = None
    step_us: _Us | None = None
    peak_bytes: list[_Bytes] = []
    sent_bytes: list[list[_Bytes]] = []
    whole_ops: _LoadSchema | None = None
    """If ops are split: the best schedule with whole ops that the search found."""


class PlacementSchema(Extensible):
    """A device and a rank for every op."""

    model_config = ConfigDict(title="pesto-placement")

    format: Literal["pesto-placement"]
    version: Literal[1, 2]
    provenance: dict[str, Any] = {}
    """For the record: hashes of the profile and the graph, the strategy and its parameters."""
    devices: list[str]
    """Names of the machine's devices."""
    ops: _PlacedOpsSchema
    plan: PlanSchema = PlanSchema()
    parts: PartsSchema = PartsSchema()
    fingerprint: list[str] = []
    """For each op of the graph (of `parts.ops`, if there are parts), a digest of its type and
    inputs, to find changed ops later."""
    predicted: _PredictedSchema = _PredictedSchema()
