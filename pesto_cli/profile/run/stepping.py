"""Run steps with and without a trace in pairs, so that disturbances affect both equally.

The traced steps give the times of ops. The untraced steps give the step time without the cost of
tracing. This module runs in the client process.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto_cli.cluster import Connection
from pesto_cli.data.graph import FloatArray
from pesto_cli.graphdef.bodies import Bodies
from pesto_cli.profile.measured import Measured
from pesto_cli.profile.measured.copies import device_type
from pesto_cli.profile.traces import step_stats
from pesto_cli.runtime.repetitions import repetitions
from pesto_cli.runtime.spans import busy_us, idle_us, spans
from pesto_cli.runtime.step import opened

# So many steps are run whatever the time limit is.
FEWEST_STEPS, FEWEST_WARM_UP = 3, 1


@dataclass(frozen=True, eq=False)
class Stepped:
    """Measurements of a step.

    measured: times and sizes of nodes in the traced steps.
    step_us: `[num_steps]`, time of each untraced step.
    idle_us: `[num_steps]`, time between the nodes of each traced step on its busiest device.
    """

    measured: Measured
    step_us: FloatArray
    idle_us: FloatArray


def pair_order(number: int) -> tuple[bool, bool]:
    """Return whether each step of a pair is traced; number: of the pair, from 0.

    A branch of a step may run in every second, fourth or eighth step only, as in gradient
    accumulation. The order is the Thue-Morse sequence, so that some such steps are traced.
    """
    is_first_traced = number.bit_count() % 2 == 1
    return is_first_traced, not is_first_traced


def stepped(
    connection: Connection,
    meta: Any,
    place_of: Mapping[str, str],
    num_steps: int,
    num_warm_up: int,
    feeds: str | None,
    limit_s: float = math.inf,
) -> Stepped:
    """Run `num_steps` untraced and as many traced steps of a placed MetaGraphDef, in pairs.

    place_of: TensorFlow's name of a device -> its device kind. limit_s: no more steps begin after
        so many seconds, except for the fewest.
    """
    with opened(connection, meta, feeds) as step:
        deadline_s = time.monotonic() + limit_s
        for _ in repetitions(num_warm_up, FEWEST_WARM_UP, deadline_s):
            step.run()
        untraced_us, traced = [], []
        for number in repetitions(num_steps, FEWEST_STEPS, deadline_s):
            for is_traced in pair_order(number):
                if is_traced:
                    traced.append(step.traced())
                else:
                    untraced_us.append(step.run().us)
    return Stepped(
        measured=step_stats.measured(
            [metadata.step_stats for metadata in traced],
            lambda name: place_of.get(name, device_type(name)),
            Bodies.of(meta.graph_def),
        ),
        step_us=np.array(untraced_us),
        idle_us=np.array([_idle_us(metadata, meta) for metadata in traced]),
    )


def _idle_us(traced: Any, meta: Any) -> float:
    ran = spans(traced, meta.graph_def)
    busy = busy_us(ran)
    return idle_us(ran, max(busy, key=busy.__getitem__)) if busy else 0.0
