"""Prepare a process before a contender's time is measured: compile kernels, import modules."""

from contextlib import suppress
from functools import cache

from pesto_cli.bench.contenders import CONTENDERS
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.limits import Limits
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.errors import UnfitError
from pesto_cli.garbage import collect_rarely
from pesto_cli.strategies import Context
from pesto_cli.strategies.warm_up import warm_up


@cache
def prepare(contender: str) -> None:
    """Solve a problem of a few ops with a contender, once in each process."""
    collect_rarely()
    warm_up()
    names = [f"layer_{index // 2}/op_{index}" for index in range(4)]
    graph = OpGraph.build(names, [Tensor(op, 2**20, [op + 1]) for op in range(3)])
    problem = Problem.build(graph, {"GPU": [10.0] * 4}, PRESETS["v100x2-nvlink"])
    limits = Limits(time_limit_s=0.01, deterministic=True)
    with suppress(UnfitError):  # of a strategy that needs prices of parts
        CONTENDERS[contender].strategy(problem, Context(limits))
