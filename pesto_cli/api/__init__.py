"""The commands of the command line as functions: `from pesto_cli import api as pesto`.

    graph = pesto.export("zoo:RNNLM-2-2048")
    profile = pesto.profile(graph, "v100x2-nvlink")
    result = pesto.solve(profile, time_limit_s=60)
    placed = pesto.apply(graph, pesto.placement(profile, result))

`load` reads any file of pesto and any graph of TensorFlow. `save` writes what the other functions
return. In IPython, results are shown as tables.
"""

import sys

from pesto_cli.api.applying import apply
from pesto_cli.api.charts import layers, memory, merges, report, timeline
from pesto_cli.api.checking import check, check_same_machine, diff
from pesto_cli.api.coarsening import coarsen, expand, merge_log
from pesto_cli.api.costs import (
    allow_local,
    constrain,
    keep_devices,
    limit_parts,
    profile,
    profile_by_run,
    whole_variables,
)
from pesto_cli.api.explaining import explain, explain_briefly, explain_step
from pesto_cli.api.files import export, load, read_graph, save
from pesto_cli.api.live_tuning import tune_script
from pesto_cli.api.networkx_graphs import from_networkx, to_networkx
from pesto_cli.api.placing import (
    carry_over,
    compare,
    placement,
    predicted_us,
    random_orders_us,
    sampled_makespans_us,
    simulate,
    solve,
)
from pesto_cli.api.reuse import (
    earlier_placement,
    earlier_result,
    fresh_profile,
    is_fresh_placement,
)
from pesto_cli.api.runner import runner
from pesto_cli.api.running import run_steps
from pesto_cli.api.splitting import coverage, plan, rewritten, split
from pesto_cli.api.training import RealSteps, train
from pesto_cli.api.tuning import tune
from pesto_cli.bounds import critical_path_us, lower_bound_us
from pesto_cli.cluster import connected, is_live
from pesto_cli.data.constraints import SplitRule
from pesto_cli.data.limits import Limits
from pesto_cli.evaluation.violations import violations
from pesto_cli.files import (
    input_limit,
    read_comm,
    read_constraints,
    read_machine,
    read_placement,
    read_profile,
    write_comm,
    write_placement,
    write_profile,
)
from pesto_cli.graphdef.containers import read_meta_graph, write_meta_graph
from pesto_cli.graphdef.programs.capture import capture
from pesto_cli.learned.weights import read_weights, write_weights
from pesto_cli.report.notebook import register
from pesto_cli.strategies import STRATEGIES, Context
from pesto_cli.strategies.pesto import Pesto
from pesto_cli.strategies.warm_up import warm_up

__all__ = [
    "STRATEGIES",
    "Context",
    "Limits",
    "Pesto",
    "RealSteps",
    "SplitRule",
    "allow_local",
    "apply",
    "capture",
    "carry_over",
    "check",
    "check_same_machine",
    "coarsen",
    "compare",
    "connected",
    "constrain",
    "coverage",
    "critical_path_us",
    "diff",
    "earlier_placement",
    "earlier_result",
    "expand",
    "explain",
    "explain_briefly",
    "explain_step",
    "export",
    "fresh_profile",
    "from_networkx",
    "input_limit",
    "is_fresh_placement",
    "is_live",
    "keep_devices",
    "layers",
    "limit_parts",
    "load",
    "lower_bound_us",
    "memory",
    "merge_log",
    "merges",
    "placement",
    "plan",
    "predicted_us",
    "profile",
    "profile_by_run",
    "random_orders_us",
    "read_comm",
    "read_constraints",
    "read_graph",
    "read_machine",
    "read_meta_graph",
    "read_placement",
    "read_profile",
    "read_weights",
    "report",
    "rewritten",
    "run_steps",
    "runner",
    "sampled_makespans_us",
    "save",
    "simulate",
    "solve",
    "split",
    "timeline",
    "to_networkx",
    "train",
    "tune",
    "tune_script",
    "violations",
    "warm_up",
    "whole_variables",
    "write_comm",
    "write_meta_graph",
    "write_placement",
    "write_profile",
    "write_weights",
]


def _show_values_in_notebooks() -> None:
    """Register the representations of results if IPython runs; without IPython do nothing."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None:
        register(shell, critical_path_us)


_show_values_in_notebooks()
