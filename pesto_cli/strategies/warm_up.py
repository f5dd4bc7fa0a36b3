"""Compile the kernels before a time limit begins; later calls read the cached kernels."""

from functools import cache

import numpy as np

from pesto_cli.bounds import lower_bound_us
from pesto_cli.coarsen import coarsen
from pesto_cli.coarsen.leftover import leftover_pairs
from pesto_cli.coarsen.paths import heights, longest_paths
from pesto_cli.coarsen.quotient import Quotient
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.limits import Limits
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.evaluation.memory import held_over_time
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.refine import justified, refine
from pesto_cli.refine.samples import Samples
from pesto_cli.strategies.baechi.m_etf import MEtf
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.heft import heft_schedule
from pesto_cli.strategies.memory_estimate import memory_bytes


@cache
def warm_up() -> None:
    """Run each kernel on a problem of a few ops."""
    names = [f"layer_{index // 2}/op_{index}" for index in range(8)]
    graph = OpGraph.build(
        names,
        [Tensor(op, 2**34, [op + 1, min(op + 2, 7)]) for op in range(7)],
        control_edges=[(0, 7)],
    )
    problem = Problem.build(graph, {"GPU": np.ones(8)}, PRESETS["v100x2-nvlink"])
    simulator = Simulator(problem)
    start = simulator.list_schedule(np.full(8, 1), simulator.upward_rank())
    simulator.replay(start.placement)
    justified(simulator, simulator.list_schedule(np.arange(8) % 2 + 1, simulator.upward_rank()))
    held_over_time(problem, start)
    lower_bound_us(problem)
    coarsen(problem, 3)
    # `coarsen` uses this kernel only on few graphs, so it is called directly.
    quotient = Quotient.of(problem, np.zeros(len(graph.consumers)))
    leftover_pairs(quotient, heights(quotient), longest_paths(quotient))
    MEtf()(problem, Context())
    heft_schedule(problem, memory_bytes(problem, 0.0))
    limits = Limits(time_limit_s=1e-5, deterministic=True)
    refine(simulator, [start], limits)
    samples = Samples.drawn(simulator, np.ones((8, problem.num_devices)), 1, 0)
    refine(simulator, [start], limits, samples=samples)
