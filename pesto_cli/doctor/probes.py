"""What is found out by loading a library and using it; each in a process of its own."""

import math
import tempfile
from importlib import metadata
from pathlib import Path

from pesto_cli.errors import EnvironmentFailedError

LIMIT_S = 60.0
LIBRARIES = {"cpsat": "ortools", "cbc": "pulp", "highs": "highspy"}


def tensorflow_devices() -> str:
    """Its version, and the devices that a session has."""
    from pesto_cli.cluster.discovery import found_devices
    from pesto_cli.graphdef.tensorflow import tensorflow

    version = tensorflow().__version__
    devices = found_devices("", LIMIT_S)
    # The memory limit of a CPU is made up.
    names = [
        f"{each.name} ({each.limit_bytes / 2**30:.1f} GiB)" if each.type == "GPU" else each.name
        for each in devices
    ]
    return f"{version}, sees {', '.join(names)}"


def solved(solver: str) -> str:
    """A solver's answer to three jobs on two machines, which are done in 5 us at best."""
    from pesto_cli import ilp
    from pesto_cli.data.graph import OpGraph
    from pesto_cli.data.limits import Limits
    from pesto_cli.data.machine import PRESETS
    from pesto_cli.data.problem import Problem
    from pesto_cli.data.result import SolveStatus

    graph = OpGraph.build(["a", "b", "c"])
    problem = Problem.build(graph, {"GPU": [5.0, 3.0, 2.0]}, PRESETS["v100x2-nvlink"])
    answer = ilp.solve_ilp(problem, Limits(time_limit_s=LIMIT_S), solver=solver)
    if answer.status is not SolveStatus.OPTIMAL or not math.isclose(answer.objective_us, 5.0):
        raise EnvironmentFailedError(
            f"answered {answer.objective_us:g} us ({answer.status}) where 5 us is optimal"
        )
    library = metadata.version(LIBRARIES[solver])
    return f"{LIBRARIES[solver]} {library} solves a small problem to optimality"


def kernel_cache() -> str:
    """Where numba keeps compiled kernels, if they can be written there."""
    from pesto_cli import kernels
    from pesto_cli.evaluation.simulator import simulate

    kept_in = simulate.stats.cache_path
    if kept_in is None:
        raise EnvironmentFailedError(
            "no folder for compiled kernels can be written to: every process compiles again"
        )
    folder = Path(kept_in)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise EnvironmentFailedError(
            f"{folder} cannot be written to ({error.strerror}): every process compiles again"
        ) from None
    later = "not compiled yet: the first search takes 40 s longer"
    kept = "compiled" if kernels.are_cached() else later
    return f"{folder}; kernels are {kept}"


def isolated() -> str:
    """Whether this process can be moved into a network of its own."""
    from pesto_cli.cluster.isolation import leave_network

    leave_network()
    return "a network of their own is possible"


def plug_in(group: str, name: str, package: str) -> str:
    """The package of a plug-in, if the plug-in can be used."""
    from pesto_cli.plugins import UnusableError, plug_ins, registry_of

    asked = next(e for e in plug_ins() if (e.group, e.name, e.package) == (group, name, package))
    try:
        registry_of(asked).check(asked)
    except UnusableError as error:
        raise EnvironmentFailedError(f"{package}: {error}") from error
    return package
