"""Execute runs of a placed graph that are not its step, without running parts of the step.

The order of a placement is for one step. Another run (an evaluation, a summary, another training
op) that needs some ops of the step would also run all ops that are ordered before these, such as
updates of variables. So it runs copies of the ops instead: without the order, but with the same
devices and variables.
"""

from collections.abc import Collection, Mapping
from typing import Any

from pesto_cli.apply.live.copies import Copies, add_copies, downstream
from pesto_cli.graphdef.programs.session_runs import Waits

SCOPE = "unordered"


def runs_more(needed: Collection[str], added: Waits) -> bool:
    """Return whether the order makes a run execute more operations.

    needed: the operations that it needs without the order. added: the order's control inputs.
    """
    return any(source not in needed for name in needed for source in added.get(name, ()))


def unordered(graph: Any, needed: Mapping[str, Any], added: Waits) -> Copies:
    """Add copies of the operations of a run that the order delays to a graph, finalised or not.

    needed: the operations of the run without the order, by name. added: the order's control inputs.
    """
    delayed = [name for name in needed if added.get(name)]
    copied = [needed[name] for name in sorted(downstream(needed, delayed, added))]
    return Copies(add_copies(graph, copied, SCOPE, without=added))
