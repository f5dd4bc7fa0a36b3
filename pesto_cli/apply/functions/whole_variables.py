"""Check that the plan of a placement keeps variables whole, as eager programs need them."""

from pesto_cli.apply.control_inputs import is_handle
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.read import StepGraph


def check_whole_variables(step: StepGraph, placement: PlacementFile, what: str) -> None:
    """Check that a placement keeps all variables of a step whole.

    what: names the program.

    Raises:
        BadInputError: the placement splits or mirrors a variable.
    """
    for node in step.wiring.nodes:
        if node.name in placement.plan.choices and is_handle(node, step.wiring.op_defs):
            raise BadInputError(
                f"{what}: the placement splits the variable {node.name!r}, but checkpoints of Keras"
                " and TensorFlow 2 know neither slices nor copies of a variable; a plan with whole"
                " variables was expected: solve with --whole-variables, or run the exported graph"
                " (pesto run GRAPH)."
            )
