"""The last part of a robust search: from the least makespan to the least mean makespan.

Real op times and delays vary, and a step waits for the last of several tensors. So the schedule
with the least simulated makespan need not be the one with the least mean of real steps. A robust
search refines it again, by the mean makespan over a few samples. The result is tuned to these
samples, so it is compared with its start on new ones.
"""

from dataclasses import replace

from pesto_cli.data.graph import FloatArray
from pesto_cli.data.limits import Limits
from pesto_cli.data.schedule import Schedule, objective
from pesto_cli.data.solution import SampledMeans
from pesto_cli.evaluation.sampling import sampled_makespans_us
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.refine import refine
from pesto_cli.refine.samples import Samples

# Number of samples in the cost of a schedule, and number of new samples that decide in the end.
NUM_SAMPLES = 6
NUM_NEW_SAMPLES = 50
# Seeds of these samples, which are the same in all searches.
SEED, NEW_SEED = 1, 2
# The share of the time that starts and super-ops leave, in which the mean makespan is minimised.
ROBUST_SHARE = 0.4


def refined_robustly(
    simulator: Simulator, plain: Schedule, deviation: FloatArray, limits: Limits
) -> tuple[Schedule, SampledMeans]:
    """Return a schedule with a small mean makespan, and its mean; at worst the given schedule.

    Args:
        simulator: simulator of the problem.
        plain: the best schedule of a search without samples.
        deviation: `[num_ops, num_devices]`; see `sampled_graphs`.
        limits: limits of this part of the search.
    """
    found = plain
    if not limits.stop.is_set():
        samples = Samples.drawn(simulator, deviation, NUM_SAMPLES, SEED)
        found = refine(simulator, [plain], limits, samples=samples)
    mean_us, plain_mean_us = (
        _new_mean_us(simulator, schedule, deviation) for schedule in (found, plain)
    )
    means = SampledMeans(NUM_NEW_SAMPLES, mean_us, plain.makespan_us, plain_mean_us)
    shortfalls = [objective(simulator.problem, schedule)[0] for schedule in (found, plain)]
    if (shortfalls[0], mean_us) < (shortfalls[1], plain_mean_us):
        return found, means
    return plain, replace(means, mean_us=plain_mean_us)


def _new_mean_us(simulator: Simulator, schedule: Schedule, deviation: FloatArray) -> float:
    placement = schedule.placement
    sampled_us = sampled_makespans_us(simulator, placement, deviation, NUM_NEW_SAMPLES, NEW_SEED)
    return float(sampled_us.mean())
