"""Short time slices for the threads of a worker, so that it sends and receives while it computes.

On one core, the thread that sends a tensor waits while another one computes. Linux lets it wait for
the rest of a slice, 1 to 3 ms, and then for the next timer tick. With short slices it gets the
core nearly at once (docs/running.md, "Waits of split plans"). Linux has had slices of single
threads since 6.12; older kernels ignore them.
"""

import ctypes
import os
import platform
import struct

SLICE_NS = 100_000
"""The shortest slice that Linux allows."""

# Number of the system call sched_setattr(2) by processor.
SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}
# `struct sched_attr`: size, policy, flags, nice, priority, runtime, deadline, period. For threads
# that share cores fairly, the runtime is the slice.
ATTRIBUTES = struct.Struct("IIQiIQQQ")


def shorten_time_slices() -> bool:
    """Give short slices to this thread, and to all threads that it starts from now on.

    Returns:
        Whether the system accepted the call. Nothing else depends on it.
    """
    number = SET_ATTRIBUTES.get(platform.machine())
    if number is None:
        return False
    policy, nice = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    wanted = ATTRIBUTES.pack(ATTRIBUTES.size, policy, 0, nice, 0, SLICE_NS, 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, 0, wanted, 0) == 0)
