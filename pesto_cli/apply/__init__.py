"""Apply placements to the graphs that they were computed for.

    meta = read_meta_graph("rnnlm.meta")
    changes = planned_changes(meta, read_placement(Path("rnnlm.placement.json")))
    write_meta_graph("rnnlm.placed.meta", with_changes(meta, changes))

and to run the placed graph:

    with tf.compat.v1.Session(config=session_config()) as session: ...
"""

from pesto_cli.apply.devices import parse_devices
from pesto_cli.apply.edits import PLACED, Changes, Order, planned_changes
from pesto_cli.apply.functions import PlacedFunction, place_function
from pesto_cli.apply.functions.variables import placed_variables
from pesto_cli.apply.live import placed_program, run_script
from pesto_cli.apply.live.hooks import hooked
from pesto_cli.apply.live.program import ProgramReport
from pesto_cli.apply.live.switched import NextStep, SwitchedProgram
from pesto_cli.apply.placed import apply, with_changes
from pesto_cli.apply.session import (
    PlacementMayBeLostWarning,
    check_session_config,
    session_config,
)
from pesto_cli.apply.tf_pesto import write_tf_pesto

__all__ = [
    "PLACED",
    "Changes",
    "NextStep",
    "Order",
    "PlacedFunction",
    "PlacementMayBeLostWarning",
    "ProgramReport",
    "SwitchedProgram",
    "apply",
    "check_session_config",
    "hooked",
    "parse_devices",
    "place_function",
    "placed_program",
    "placed_variables",
    "planned_changes",
    "run_script",
    "session_config",
    "with_changes",
    "write_tf_pesto",
]
