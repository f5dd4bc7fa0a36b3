"""How much of a real step the op times explain, and what each op costs beyond its own time.

    step = dispatch + sum over the ops of (time + overhead)        on one device

`step` is measured without a trace, `dispatch` is a step that does nothing, and the times are those
of the trace. What is left is the executor's: it is shared out to the ops as their overhead. It is
no more than what lies between the ops of a traced step, where the tracing itself is added: more is
left only where something else kept all untraced steps from the processor.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray


@dataclass(frozen=True)
class Reconciliation:
    """A step on one device, or on several at once, and its op times.

    kind: of the device. num_devices: that had ops. num_ops: on the device that was busiest.
    step_us: untraced. dispatch_us: of a step that is fed and does nothing. ops_us: sum on the
        busiest device. All are medians.
    op_overhead_us: what an op costs beyond its time; None where several devices had ops, and
        waited for each other.
    """

    kind: str
    num_devices: int
    num_ops: int
    step_us: float
    dispatch_us: float
    ops_us: float
    op_overhead_us: float | None

    @property
    def explained(self) -> float:
        """The share of the step that is op times on the busiest device."""
        return self.ops_us / self.step_us

    @property
    def text(self) -> str:
        """All of it in a sentence."""
        where = f"one {self.kind}" if self.num_devices == 1 else f"{self.num_devices} devices"
        overhead = (
            "the rest is also waiting for each other, so no overhead was fitted"
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
    step_us: float,
    idle_us: float,
    dispatch_us: float,
) -> Reconciliation:
    """Reconcile an untraced step with its op times.

    Args:
        kinds: of the devices.
        time_us: `[num_ops]`, on the device where each op was; NaN for feeds and returns of fetches,
            which are free.
        device: `[num_ops]`, index of that device.
        step_us: of untraced steps, their median, as all that follows.
        idle_us: between the ops of a traced step.
        dispatch_us: of a step that does nothing on these devices.
    """
    counted = ~np.isnan(time_us)
    num_ops = np.bincount(device[counted], minlength=len(kinds))
    sums_us = np.bincount(device[counted], time_us[counted], minlength=len(kinds))
    busiest = int(sums_us.argmax())
    num_devices = int(np.count_nonzero(num_ops))
    rest_us = min(idle_us, max(0.0, step_us - dispatch_us - float(sums_us[busiest])))
    return Reconciliation(
        kind=kinds[busiest],
        num_devices=num_devices,
        num_ops=int(num_ops[busiest]),
        step_us=step_us,
        dispatch_us=dispatch_us,
        ops_us=float(sums_us[busiest]),
        op_overhead_us=rest_us / int(num_ops[busiest]) if num_devices == 1 else None,
    )
