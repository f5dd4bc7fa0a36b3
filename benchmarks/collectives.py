"""Sums of gradients by plain ops and by a collective: `python -m benchmarks.collectives`.

Two workers of this host, each with a core of its own, compute partial sums, and both need the
total. It is added on one of them and copied (by turns, as variables on owners are), in halves on
both (reduce-scatter and all-gather of plain ops), or by TensorFlow's `CollectiveReduce`. Steps of
all forms run by turns.
"""

import multiprocessing
import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.report.markdown import markdown_table

ROWS, COLUMNS, TERMS = (32, 256, 1024), 1024, 256
NUM_SUMS, ROUNDS, STEPS_IN_A_ROW, WARM_UP = 8, 15, 3, 3
DEVICES = [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2)]

Tensor = Any


def main() -> None:
    """Run the steps, and print their times."""
    with workers() as target:
        for rows in ROWS:
            print(f"{NUM_SUMS} sums of {rows * COLUMNS * 4 / 1e6:.1f} MB")
            alone, *others = step_times_ms(target, rows).items()
            lines = [[alone[0], f"{alone[1]:.1f}", ""]]
            lines += [[form, f"{ms:.1f}", f"{ms - alone[1]:.1f}"] for form, ms in others]
            print(markdown_table(["form", "step ms", "more than without sums"], lines), flush=True)


@contextmanager
def workers() -> Iterator[str]:
    """Yield the address of a session over two servers, each in a process of its own."""
    sockets = [socket.create_server(("localhost", 0)) for _ in DEVICES]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    processes = multiprocessing.get_context("spawn")
    servers = [processes.Process(target=_serve, args=(ports, task)) for task in range(len(ports))]
    for server in servers:
        server.start()
    try:
        yield f"grpc://localhost:{ports[0]}"
    finally:
        for server in servers:
            server.kill()


def _serve(ports: Sequence[int], task: int) -> None:
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[task]})
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    tensorflow().distribute.Server(cluster, "worker", task, config=_config()).join()


def _config() -> Any:
    """Return the settings; without optimisation, as it would remove ops without a consumer."""
    config = tensorflow().compat.v1.ConfigProto(intra_op_parallelism_threads=1)
    config.experimental.collective_group_leader = DEVICES[0].rpartition("/")[0]
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    return config


def step_times_ms(target: str, rows: int) -> Mapping[str, float]:
    """Return the median step time of each form; partial sums have `rows` x `COLUMNS` elements."""
    sessions = {form: _session(target, rows, total) for form, total in FORMS.items()}
    times: dict[str, list[float]] = {form: [] for form in FORMS}
    for round_ in range(ROUNDS):
        for form, (session, step) in sessions.items():
            for _ in range(STEPS_IN_A_ROW if round_ else WARM_UP):
                began = time.perf_counter()
                session.run(step)
                if round_:
                    times[form].append((time.perf_counter() - began) * 1e3)
    return {form: statistics.median(each) for form, each in times.items()}


def _session(target: str, rows: int, total: Callable[..., list[Tensor]]) -> tuple[Any, Any]:
    tf = tensorflow()
    tf1 = tf.compat.v1
    with tf1.Graph().as_default() as graph:
        used: list[Tensor] = []
        for number in range(NUM_SUMS):
            partial = []
            for task, device in enumerate(DEVICES):
                with tf1.device(device):
                    left = _ones(f"left_{number}_{task}", rows, TERMS)
                    right = _ones(f"right_{number}_{task}", TERMS, COLUMNS)
                    partial.append(tf.matmul(left, right))
            for device, tensor in zip(DEVICES, total(partial, number), strict=True):
                with tf1.device(device):
                    used.append(tf.reduce_max(tensor).op)
        with tf1.device(DEVICES[0]):
            step = tf.group(*used)
        session = tf1.Session(target, graph, _config())
        session.run(tf1.global_variables_initializer())
    return session, step


def _ones(name: str, *shape: int) -> Tensor:
    tf1 = tensorflow().compat.v1
    return tf1.get_variable(name, initializer=tensorflow().ones(shape), use_resource=True)


def _none(partial: list[Tensor], number: int) -> list[Tensor]:
    return partial


def _by_owner(partial: list[Tensor], number: int) -> list[Tensor]:
    with tensorflow().device(DEVICES[number % len(DEVICES)]):
        return [tensorflow().add_n(partial)] * len(DEVICES)


def _by_halves(partial: list[Tensor], number: int) -> list[Tensor]:
    tf, halves, sums = tensorflow(), [], []
    for device, tensor in zip(DEVICES, partial, strict=True):
        with tf.device(device):
            halves.append(tf.split(tensor, len(DEVICES)))
    for device, parts in zip(DEVICES, zip(*halves, strict=True), strict=True):
        with tf.device(device):
            sums.append(tf.add_n(parts))
    found = []
    for device in DEVICES:
        with tf.device(device):
            found.append(tf.concat(sums, 0))
    return found


def _by_collective(partial: list[Tensor], number: int) -> list[Tensor]:
    tf, found = tensorflow(), []
    rows = int(partial[0].shape[0])
    for device, tensor in zip(DEVICES, partial, strict=True):
        with tf.device(device):
            found.append(
                tf.raw_ops.CollectiveReduce(
                    input=tensor,
                    group_size=len(DEVICES),
                    group_key=1,
                    # Shapes differ between the graphs that a server runs.
                    instance_key=rows * NUM_SUMS + number,
                    merge_op="Add",
                    final_op="Id",
                    subdiv_offsets=[0],
                )
            )
    return found


FORMS: Mapping[str, Callable[[list[Tensor], int], list[Tensor]]] = {
    "no sums": _none,
    "added on one worker, copied": _by_owner,
    "added in halves, joined": _by_halves,
    "`CollectiveReduce`": _by_collective,
}


if __name__ == "__main__":
    main()
