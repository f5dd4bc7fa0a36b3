"""How long coarsening takes, and how much parallelism it leaves, by size of graph.

The graphs are grids of recurrent cells, forward and backward, with the weights of each layer shared
by all its steps: the shape that plain merging by tensor size does worst on.
"""

import time

import numpy as np

from pesto_cli.bounds import critical_path_us, load_us
from pesto_cli.coarsen import coarsen
from pesto_cli.coarsen.coarsening import MERGINGS
from pesto_cli.graph import OpGraph, Tensor
from pesto_cli.machine import PRESETS
from pesto_cli.problem import Problem

SIZES = ((2, 20), (10, 50), (30, 100), (50, 200))  # layers, steps
TARGETS = (200, 300)
CHAIN = 4  # elementwise ops after each matmul
MATMUL_US, ELEMENTWISE_US, SHARED_US = 500.0, 10.0, 1.0
ACTIVATION_BYTES, WEIGHT_BYTES = 2**20, 2**26


def recurrent_grid(layers: int, steps: int) -> Problem:
    """A training step of `layers` recurrent layers over `steps` steps: 12 ops a cell."""
    ops: list[tuple[str, float]] = []
    tensors: dict[int, tuple[int, list[int]]] = {}  # producer: bytes, consumers
    group: list[int] = []

    def op(kind: str, time_us: float, num_bytes: int, inputs: list[int], layer: int = -1) -> int:
        index = len(ops)
        ops.append((kind, time_us))
        tensors[index] = (num_bytes, [])
        group.append(layer if layer >= 0 else layers + index)
        for producer in inputs:
            tensors[producer][1].append(index)
        return index

    def cell(inputs: list[int]) -> int:
        last = op("MatMul", MATMUL_US, ACTIVATION_BYTES, inputs)
        for _ in range(CHAIN):
            last = op("Mul", ELEMENTWISE_US, ACTIVATION_BYTES, [last])
        return last

    weights = [op("VarHandleOp", SHARED_US, WEIGHT_BYTES, [], layer) for layer in range(layers)]
    forward = np.zeros((layers, steps), dtype=np.int64)
    for layer, step in np.ndindex(layers, steps):
        before = [int(forward[layer - 1, step])] if layer else []
        before += [int(forward[layer, step - 1])] if step else []
        forward[layer, step] = cell([weights[layer], *before])
    backward = np.zeros((layers, steps), dtype=np.int64)
    gradients: list[list[int]] = [[] for _ in range(layers)]
    for layer, step in np.ndindex(layers, steps):
        layer, step = layers - 1 - layer, steps - 1 - step
        after = [int(backward[layer + 1, step])] if layer < layers - 1 else []
        after += [int(backward[layer, step + 1])] if step < steps - 1 else []
        activation = int(forward[layer, step])
        backward[layer, step] = cell([weights[layer], activation, *after])
        gradient = [int(backward[layer, step]), activation]
        gradients[layer].append(op("MatMul", MATMUL_US, WEIGHT_BYTES, gradient))
    for layer in range(layers):
        total = op("AddN", MATMUL_US, WEIGHT_BYTES, gradients[layer])
        op("ResourceApplyGradientDescent", SHARED_US, 0, [total, weights[layer]], layer)
    graph = OpGraph.build(
        [f"{kind}_{index}" for index, (kind, _) in enumerate(ops)],
        [Tensor(producer, size, consumers) for producer, (size, consumers) in tensors.items()],
        types=[kind for kind, _ in ops],
        colocation_group=group,
    )
    return Problem.build(graph, {"GPU": [us for _, us in ops]}, PRESETS["v100x2-nvlink"])


def main() -> None:
    coarsen(recurrent_grid(1, 2), 2)  # compiles
    columns = (
        "ops",
        "merging",
        "nodes",
        "seconds",
        "critical path ms",
        "of the ops",
        "lower bound",
    )
    print("".join(f"{column:>18}" for column in columns))
    for layers, steps in SIZES:
        problem = recurrent_grid(layers, steps)
        path_ms, load_ms = critical_path_us(problem) / 1e3, load_us(problem) / 1e3
        for target in TARGETS:
            for merging in MERGINGS:
                started = time.perf_counter()
                coarse = coarsen(problem, target, merging=merging)
                seconds = time.perf_counter() - started
                row = (
                    f"{problem.num_ops}",
                    merging,
                    f"{coarse.num_nodes}",
                    f"{seconds:.2f}",
                    f"{critical_path_us(coarse.problem) / 1e3:.1f}",
                    f"{path_ms:.1f}",
                    f"{max(path_ms, load_ms):.1f}",
                )
                print("".join(f"{value:>18}" for value in row))


if __name__ == "__main__":
    main()
