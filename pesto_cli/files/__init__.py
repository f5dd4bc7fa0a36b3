"""The versioned file formats of the core types, one module for each.

Files are deterministic: the same value gives the same bytes. They are written atomically. A file
with another format, version or wrong content is refused with one clear message.
"""

from pesto_cli.files.comm import CommFit, LinkKind, link_kinds, read_comm, with_comm, write_comm
from pesto_cli.files.constraints import read_constraints
from pesto_cli.files.machine import read_machine
from pesto_cli.files.placement import PlacementFile, placement, read_placement, write_placement
from pesto_cli.files.profile import Profile, read_profile, write_profile
from pesto_cli.files.profile_schema import MAX_TENSOR_BYTES
from pesto_cli.files.reading import (
    check_input_size,
    content,
    input_limit,
    max_input_bytes,
    read_bytes,
)
from pesto_cli.files.storage import loads, sha256
from pesto_cli.files.tuning_log import (
    Candidate,
    Measurement,
    TuningLog,
    TuningRound,
    read_tuning_log,
    write_tuning_log,
)
from pesto_cli.files.writing import atomic_write

__all__ = [
    "MAX_TENSOR_BYTES",
    "Candidate",
    "CommFit",
    "LinkKind",
    "Measurement",
    "PlacementFile",
    "Profile",
    "TuningLog",
    "TuningRound",
    "atomic_write",
    "check_input_size",
    "content",
    "input_limit",
    "link_kinds",
    "loads",
    "max_input_bytes",
    "placement",
    "read_bytes",
    "read_comm",
    "read_constraints",
    "read_machine",
    "read_placement",
    "read_profile",
    "read_tuning_log",
    "sha256",
    "with_comm",
    "write_comm",
    "write_placement",
    "write_profile",
    "write_tuning_log",
]
