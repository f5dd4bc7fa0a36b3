"""Reconcile the time of a real step with its op times: fit the overhead of an op.

    step = dispatch + sum over the ops of (time + overhead)        on one device

`step` is measured without a trace, `dispatch` is the time of a step that does nothing, and op times
come from the trace. The rest is time of TensorFlow's executor, divided equally among the ops as
their overhead. The rest is limited to the time between the ops of a traced step. That time also
includes the cost of tracing, so a larger rest means that other processes delayed the untraced
steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray


@dataclass(frozen=True)
class Reconciliation:
    """The time of a step on one device or on several, compared with its op times.

    kind: device kind of the busiest device. num_devices: number of devices that had ops.
    num_ops: number of ops on the busiest device.
    step_us: time of an untraced step. dispatch_us: time of a step that is fed and does nothing.
    ops_us: sum of the op times on the busiest device. All three are medians over the steps.
    quartiles_us: first and third quartile of the times of untraced steps.
    op_overhead_us: overhead of an op beyond its time; None if several devices had ops, as the
        step then includes waits between devices.
    """

    kind: str
    num_devices: int
    num_ops: int
    step_us: float
    quartiles_us: tuple[float, float]
    dispatch_us: float
    ops_us: float
    op_overhead_us: float | None

    @property
    def explained(self) -> float:
        """The op times of the busiest device as a share of the step."""
        return self.ops_us / self.step_us

    @property
    def text(self) -> str:
        """The comparison in one sentence."""
        where = f"one {self.kind}" if self.num_devices == 1 else f"{self.num_devices} devices"
        overhead = (
            "the rest includes waits between devices, so no overhead was fitted"
            if self.op_overhead_us is None
            else f"the executor took {self.op_overhead_us:.3f} us for each of {self.num_ops} ops"
        )
        return (
            f"an untraced step on {where} took {self.step_us / 1e3:.3f} ms; op times explain "
            f"{self.ops_us / 1e3:.3f} ms of it ({self.explained:.1%}), the dispatch of an empty "
            f"step {self.dispatch_us / 1e3:.3f} ms; {overhead}."
        )


def reconciled(
    kinds: Sequence[str],
    time_us: FloatArray,
    device: IntArray,
    *,
    steps_us: FloatArray,
    idle_us: float,
    dispatch_us: float,
) -> Reconciliation:
    """Compare the time of untraced steps with the op times, and fit the overhead of an op.

    Args:
        kinds: `[num_devices]`, kind of each device.
        time_us: `[num_ops]`, time of each op on its device; NaN for feeds and fetches, which take
            no time.
        device: `[num_ops]`, index of the device that ran each op.
        steps_us: `[num_steps]`, times of the untraced steps.
        idle_us: median time between the ops of a traced step.
        dispatch_us: median time of a step that does nothing on these devices.
    """
    counted = ~np.isnan(time_us)
    num_ops = np.bincount(device[counted], minlength=len(kinds))
    sums_us = np.bincount(device[counted], time_us[counted], minlength=len(kinds))
    busiest = int(sums_us.argmax())
    num_devices = int(np.count_nonzero(num_ops))
    low_us, step_us, high_us = np.quantile(steps_us, (0.25, 0.5, 0.75)).tolist()
    rest_us = min(idle_us, max(0.0, step_us - dispatch_us - float(sums_us[busiest])))
    return Reconciliation(
        kind=kinds[busiest],
        num_devices=num_devices,
        num_ops=int(num_ops[busiest]),
        step_us=step_us,
        quartiles_us=(low_us, high_us),
        dispatch_us=dispatch_us,
        ops_us=float(sums_us[busiest]),
        op_overhead_us=rest_us / int(num_ops[busiest]) if num_devices == 1 else None,
    )
