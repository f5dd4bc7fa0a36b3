"""Short time slices for the threads of a worker, so that it sends and receives while it computes.

A worker has one core. While one of its threads computes, a thread that sends a tensor waits for the
end of the other thread's slice, which is 1 to 3 ms long, and then for the next timer tick. With
short slices it waits less (docs/running.md, "Waits of split plans"). Linux has had slices of single
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
    """Give this thread a short slice; the threads that it starts later inherit it.

    Returns:
        Whether the system accepted the call. Otherwise the slice stays as it was.
    """
    number = SET_ATTRIBUTES.get(platform.machine())
    if number is None:
        return False
    policy, nice = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    wanted = ATTRIBUTES.pack(ATTRIBUTES.size, policy, 0, nice, 0, SLICE_NS, 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, 0, wanted, 0) == 0)
