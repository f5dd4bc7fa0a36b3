"""Checks that load and use a library; each runs in a child process."""

import math
import tempfile
from importlib import metadata
from pathlib import Path

from pesto_cli.errors import EnvironmentFailedError

LIMIT_S = 60.0
LIBRARIES = {"cpsat": "ortools", "cbc": "pulp", "highs": "highspy"}


def tensorflow_devices() -> str:
    """Return TensorFlow's version and the devices of a session."""
    from pesto_cli.cluster.discovery import found_devices
    from pesto_cli.graphdef.tensorflow import tensorflow

    version = tensorflow().__version__
    devices = found_devices("", LIMIT_S)
    # TensorFlow's memory limit of a CPU means nothing.
    names = [
        f"{each.name} ({each.limit_bytes / 2**30:.1f} GiB)" if each.type == "GPU" else each.name
        for each in devices
    ]
    return f"{version}, sees {', '.join(names)}"


def split_product() -> str:
    """Split a matrix product into two parts, and compare what TensorFlow computes with numpy."""
    import numpy as np

    from pesto_cli.apply import session_config
    from pesto_cli.apply.splitting import split_graph
    from pesto_cli.data.plan import Choice, Plan
    from pesto_cli.graphdef.fetches import TRAIN_OP
    from pesto_cli.graphdef.tensorflow import tensorflow

    tf1 = tensorflow().compat.v1
    left, right = np.random.default_rng(0).normal(size=(2, 64, 64))
    with tf1.Graph().as_default():
        factors = [tf1.placeholder("float64", (64, 64), name) for name in ("left", "right")]
        tf1.add_to_collection(TRAIN_OP, tf1.matmul(*factors, name="product"))
        whole = tf1.train.export_meta_graph()
    split = split_graph(whole, Plan({"product": Choice("rows", (24, 40))}))
    with tf1.Graph().as_default(), tf1.Session(config=session_config()) as session:
        tf1.train.import_meta_graph(split)
        product = session.run("product:0", {"left:0": left, "right:0": right})
    if not np.allclose(product, left @ right, atol=1e-9):
        raise EnvironmentFailedError("a product in two parts is not the whole product")
    return "a product in two parts is the whole product"


def solved(solver: str) -> str:
    """Solve a problem of three ops on two devices, whose optimum is 5 us, with a solver.

    Return the solver's library and version.
    """
    import numpy as np

    from pesto_cli import ilp
    from pesto_cli.data.graph import OpGraph
    from pesto_cli.data.limits import Limits
    from pesto_cli.data.presets import PRESETS
    from pesto_cli.data.problem import Problem
    from pesto_cli.data.result import SolveStatus
    from pesto_cli.evaluation.simulator import Simulator

    graph = OpGraph.build(["a", "b", "c"])
    problem = Problem.build(graph, {"GPU": [5.0, 3.0, 2.0]}, PRESETS["v100x2-nvlink"])
    # Kernels may have to be compiled, which does not belong to the time of the solver.
    Simulator(problem).list_schedule(np.ones(3, np.int64), np.zeros(3))
    answer = ilp.solve_ilp(problem, Limits(time_limit_s=LIMIT_S), solver=solver)
    if answer.status is not SolveStatus.OPTIMAL or not math.isclose(answer.objective_us, 5.0):
        raise EnvironmentFailedError(
            f"answered {answer.objective_us:g} us ({answer.status}) where 5 us is optimal"
        )
    library = metadata.version(LIBRARIES[solver])
    return f"{LIBRARIES[solver]} {library} solves a small problem to optimality"


def kernel_cache() -> str:
    """Return the cache folder of compiled kernels, and whether the kernels are in it.

    Raises:
        EnvironmentFailedError: the folder is not writable.
    """
    from pesto_cli import kernels
    from pesto_cli.evaluation.simulator import simulate

    cache_path = simulate.stats.cache_path
    if cache_path is None:
        raise EnvironmentFailedError(
            "no folder for compiled kernels is writable: every process compiles them again"
        )
    folder = Path(cache_path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise EnvironmentFailedError(
            f"{folder} is not writable ({error.strerror}): every process compiles kernels again"
        ) from None
    later = "not compiled yet: the first search takes 40 s longer"
    state = "compiled" if kernels.are_cached() else later
    return f"{folder}; kernels are {state}"


def isolated() -> str:
    """Check that this process can move to a network namespace of its own."""
    from pesto_cli.cluster.isolation import leave_network

    leave_network()
    return "network namespaces are possible"


def plug_in(group: str, name: str, package: str) -> str:
    """Check that a plug-in can be used; return its package."""
    from pesto_cli.plugins import UnusableError, plug_ins, registry_of

    found = next(e for e in plug_ins() if (e.group, e.name, e.package) == (group, name, package))
    try:
        registry_of(found).check(found)
    except UnusableError as error:
        raise EnvironmentFailedError(f"{package}: {error}") from error
    return package
