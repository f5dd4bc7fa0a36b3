"""Find devices that are slower than others of their kind, by the ops of plans that ran."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from pesto_cli.files import Measurement, TuningLog
from pesto_cli.tuning.seen import Placed, placed_on

# A device is slow if its ops take so many times as long as those of the fastest of its kind.
SLOW = 1.4
# The share of the work of a plan that says something about a device.
LEAST_SHARE = 0.05


@dataclass(frozen=True)
class SlowDevice:
    """A device whose ops take `times` times as long as on `fastest`, a device of the same kind."""

    name: str
    times: float
    fastest: str

    def __str__(self) -> str:
        return (
            f"ops on {self.name} take {self.times:.1f} times as long as on {self.fastest}, a device"
            " of the same kind: another program may use it, or its host is slower."
        )


def slow_devices(log: TuningLog) -> list[SlowDevice]:
    """Return the devices that were slow in the traced steps of a log.

    Measured times are compared with those of the profile and its contention, so that it does not
    matter which ops ran where. For each device, the median over the plans counts that give it at
    least LEAST_SHARE of their work.
    """
    ratios = defaultdict[str, list[float]](list)
    for file, measured in log.measurements:
        for name, ratio in _ratios(placed_on(log.profile.problem, file), file.names, measured):
            ratios[name].append(ratio)
    ratio_of = {name: median(each) for name, each in ratios.items()}
    slow = []
    kind_of = {each.name: each.kind for each in log.profile.problem.machine.devices}
    for name, ratio in ratio_of.items():
        alike = [other for other in ratio_of if kind_of[other] == kind_of[name]]
        fastest = min(alike, key=ratio_of.__getitem__)
        if ratio > SLOW * ratio_of[fastest]:
            slow.append(SlowDevice(name, ratio / ratio_of[fastest], fastest))
    return slow


def _ratios(
    placed: Placed, names: Sequence[str], measured: Measurement
) -> Iterator[tuple[str, float]]:
    """Yield each device that worked, and the measured time of its ops divided by the expected one.

    names: those of the placed ops, in the order of the measurement.
    """
    problem, device = placed.problem, placed.placement.device
    row_of = {name: row for row, name in enumerate(names)}
    us = measured.op_us[[row_of[name] for name in problem.graph.names]]
    usual_us = placed.usual_us
    counted = (us > 0) & (usual_us > 0) & ~problem.is_hosted
    for index, each in enumerate(problem.machine.devices):
        ops = counted & (device == index)
        if usual_us[ops].sum() > LEAST_SHARE * usual_us[counted].sum():
            yield each.name, float(us[ops].sum() / usual_us[ops].sum())
