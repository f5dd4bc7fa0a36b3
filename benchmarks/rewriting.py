"""The time to split the ops of a large step: of its problem, and of its graph.

python -m benchmarks rewriting
"""

import time

from pesto_cli import api
from pesto_cli.apply.splitting import split_step
from pesto_cli.graphdef.read import read_step
from pesto_cli.sharding.problems import rewritten
from pesto_cli.strategies.data_parallel import batch_plan

MODEL, NUM_PARTS = "NMT-4-1024", 8
MACHINE = "v100x2-nvlink"


def main() -> None:
    """Measure both, and print a row."""
    meta = api.export(f"zoo:{MODEL}")
    problem = api.profile(meta, MACHINE, parts=(2, 4, 8)).problem
    began = time.perf_counter()
    plan = batch_plan(problem, range(NUM_PARTS))
    planned = time.perf_counter()
    split = rewritten(problem, plan).problem
    rewrote = time.perf_counter()
    step = read_step(meta, MODEL)
    read = time.perf_counter()
    nodes = split_step(meta, step, plan).meta.graph_def.node
    wrote = time.perf_counter()
    print("| model | parts | ops | split | nodes | plan s | problem s | reading s | graph s |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    times = (planned - began, rewrote - planned, read - rewrote, wrote - read)
    sizes = f"{problem.num_ops:,} | {split.num_ops:,} | {len(nodes):,}"
    print(f"| {MODEL} | {NUM_PARTS} | {sizes} | {' | '.join(f'{t:.1f}' for t in times)} |")
