"""JSON Schemas of the formats, for programs that write or check these files.

`python -m pesto_cli.files.schemas docs/schemas` writes them.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel

from pesto_cli.files.comm import CommSchema
from pesto_cli.files.constraints import ConstraintsSchema
from pesto_cli.files.machine import MachineSchema
from pesto_cli.files.placement_schema import PlacementSchema
from pesto_cli.files.profile_schema import ProfileSchema
from pesto_cli.files.tuning_log import TuningLogSchema
from pesto_cli.files.writing import atomic_write

SCHEMAS: Mapping[str, type[BaseModel]] = {
    "profile": ProfileSchema,
    "placement": PlacementSchema,
    "machine": MachineSchema,
    "constraints": ConstraintsSchema,
    "comm": CommSchema,
    "tuning": TuningLogSchema,
}
# Names of schema classes; only the captured part is used as the name of a definition.
CLASS_NAME = re.compile(r"\b_?([A-Z][A-Za-z]*)Schema\b")


def schema_files() -> dict[str, str]:
    """Return name -> content of every schema file."""
    return {f"{name}.schema.json": _text(schema) for name, schema in SCHEMAS.items()}


def _text(schema: type[BaseModel]) -> str:
    return CLASS_NAME.sub(r"\1", json.dumps(schema.model_json_schema(), indent=2)) + "\n"


if __name__ == "__main__":
    for name, text in schema_files().items():
        atomic_write(Path(sys.argv[1]) / name, text.encode())
