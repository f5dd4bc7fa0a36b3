"""The cost of a state in a robust search: the mean makespan over samples, in place of the makespan.

Let C_s be the makespan of sample s, and S the number of samples. The cost is that of `cost`, with
(C_1 + ... + C_S) / S in place of C_max. A sample is a replay: devices keep the order of the list
schedule with the times of the problem, as they do in real steps. The memory excess is that of this
list schedule.

The longest path and the largest load of sample s are lower bounds on C_s. So the sum of all C_s may
exceed the sum of these bounds by a known amount, which the replays use up one after the other.
"""

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.evaluation.simulator import longest_tails, simulate, transfers_us
from pesto_cli.kernels import kernel
from pesto_cli.refine.cost import TRANSFERS_SHARE, CostData, Evaluation, evaluate
from pesto_cli.refine.samples import sampled_graph


@kernel
def evaluate_state(
    data: CostData, device: IntArray, offset: FloatArray, limit_us: float
) -> Evaluation:
    """Evaluate a state in all samples, or without samples in one simulation; see `evaluate`."""
    if len(data.samples.duration_us) == 0:
        found: Evaluation = evaluate(data, device, offset, limit_us)
    else:
        found = evaluate_samples(data, device, offset, limit_us)
    return found


@kernel
def evaluate_samples(
    data: CostData, device: IntArray, offset: FloatArray, limit_us: float
) -> Evaluation:
    """Replay the list schedule by rank + offset in all samples; stop once the cost is too high."""
    num_samples = len(data.samples.duration_us)
    transfers = transfers_us(data.graph, data.machine, device)
    tails_us = sampled_tails_us(data, device)
    least_us = least_makespans_us(data, device, tails_us)
    # By how much the makespans may exceed their lower bounds, summed over the samples.
    left_us = num_samples * (limit_us - TRANSFERS_SHARE * transfers) - least_us.sum()
    if left_us < 0:
        return Evaluation(np.inf, 0.0, transfers, least_us, least_us, device)
    planned = evaluate(data, device, offset, np.inf)
    queue, sum_us = ops_in_order(device, planned.rank, len(data.capacity_bytes)), 0.0
    for sample in range(num_samples):
        most_us = least_us[sample] + left_us
        makespan_us = replayed_us(data, device, planned.key, queue, sample, tails_us, most_us)
        left_us -= makespan_us - least_us[sample]
        sum_us += makespan_us
        if makespan_us == np.inf:
            return Evaluation(np.inf, 0.0, transfers, least_us, least_us, device)
    mean_us = sum_us / num_samples
    return Evaluation(mean_us, planned.excess, transfers, planned.start, planned.key, planned.rank)


@kernel
def sampled_tails_us(data: CostData, device: IntArray) -> FloatArray:
    """Return the longest path from each op's start to the end, `[num_samples, num_ops]`."""
    times_us, order = data.samples.duration_us, data.topological_order
    num_samples, num_ops = len(times_us), len(device)
    tails_us, duration_us = np.empty((num_samples, num_ops)), np.empty(num_ops)
    for sample in range(num_samples):
        for op in range(num_ops):
            duration_us[op] = times_us[sample, op, device[op]]
        tails_us[sample] = longest_tails(order, duration_us, data.graph, data.machine, device)
    return tails_us


@kernel
def least_makespans_us(data: CostData, device: IntArray, tails_us: FloatArray) -> FloatArray:
    """Return a lower bound on the makespan of each sample, `[num_samples]`."""
    times_us, (num_samples, num_ops) = data.samples.duration_us, tails_us.shape
    least_us, load_us = np.zeros(num_samples), np.empty(len(data.capacity_bytes))
    for sample in range(num_samples):
        load_us[:] = 0.0
        for op in range(num_ops):
            load_us[device[op]] += times_us[sample, op, device[op]]
            least_us[sample] = max(least_us[sample], tails_us[sample, op])
        least_us[sample] = max(least_us[sample], load_us.max())
    return least_us


@kernel
def ops_in_order(device: IntArray, rank: IntArray, num_devices: int) -> IntArray:
    """Return the ops of every device in rank order, one device after the other, `[num_ops]`."""
    first, queue = np.zeros(num_devices + 1, np.int64), np.empty(len(device), np.int64)
    for op in range(len(device)):
        first[device[op] + 1] += 1
    for here in range(num_devices):
        first[here + 1] += first[here]
    for op in range(len(device)):
        queue[first[device[op]] + rank[op]] = op
    return queue


@kernel
def replayed_us(
    data: CostData,
    device: IntArray,
    key: FloatArray,
    queue: IntArray,
    sample: int,
    tails_us: FloatArray,
    limit_us: float,
) -> float:
    """Return the makespan of a sample, or inf if it exceeds the limit."""
    graph, makespan_us = sampled_graph(data.graph, data.samples, sample), 0.0
    rank, times = simulate(
        graph, data.machine, data.waits, device, key, queue, tails_us[sample], limit_us
    )
    end_us = times.end_us
    for op in range(len(device)):
        makespan_us = max(makespan_us, end_us[op] if rank[op] >= 0 else np.inf)
    return makespan_us
