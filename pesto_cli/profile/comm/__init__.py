"""Communication models: latency and time per byte of each link kind, fitted to timed transfers."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.data.machine import CommModel
from pesto_cli.errors import BadInputError
from pesto_cli.files import CommFit, LinkKind
from pesto_cli.printable import logger
from pesto_cli.profile.table import read_rows

log = logger(__name__)

# A fit below this causes a warning. The fits of Pesto, Section 3.1, have 0.92 to 0.99.
DOUBTFUL_R_SQUARED = 0.9
# Times below this are assumed to have equal absolute errors.
CLOCK_US = 1.0
# A slope that changes the largest time by a smaller share is 0, and the rest is rounding.
ROUNDING = 1e-9
# The same for transfer overheads. They are differences of step times, so they vary by some
# microseconds.
OVERHEAD_US = 10.0


@dataclass(frozen=True)
class Sample:
    """One timed transfer on a link kind."""

    src_kind: str
    dst_kind: str
    num_bytes: int
    us: float
    channel: str = ""

    @property
    def link_kind(self) -> LinkKind:
        """The link kind: kinds of sender and receiver, and channel."""
        return self.src_kind, self.dst_kind, self.channel


def read_samples(path: Path) -> list[Sample]:
    """Read timed transfers from a CSV file with the columns src_kind, dst_kind, bytes, us.

    Raises:
        BadInputError: the file cannot be read, or a row is damaged (the message names its line).
    """
    samples = [
        Sample(row.text("src_kind"), row.text("dst_kind"), row.num_bytes("bytes"), row.amount("us"))
        for row in read_rows(path, ("src_kind", "dst_kind", "bytes", "us"))
    ]
    if not samples:
        raise BadInputError(
            f"{path} has no transfers; at least two for each link kind were expected."
        )
    return samples


def fit(samples: Iterable[Sample]) -> list[CommFit]:
    """Fit a line to the samples of every link kind, in order of appearance.

    Samples may be timed on a machine or read from a file. `min_us` of the models is 0, as a line
    has no minimum.

    Raises:
        BadInputError: a link kind has samples of one size only, or larger transfers take less time.
    """
    by_kind: dict[LinkKind, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_kind[sample.link_kind].append(sample)
    return [_fit_link(kind, timed) for kind, timed in by_kind.items()]


def _fit_link(kind: LinkKind, samples: list[Sample]) -> CommFit:
    """Fit us = latency_us + us_per_byte * bytes by least squares of the relative errors.

        min  Σ ((latency_us + us_per_byte * bytes - us) / us)²

    Pesto (Section 3.1) uses absolute errors. With sizes from one byte to 64 MiB, the largest
    transfers alone would then decide the fit, and the error of the latency would be as large as
    the latency itself. But most transfers of a step are small.
    """
    src_kind, dst_kind, channel = kind
    link = f"transfers {src_kind} -> {dst_kind} {channel}".strip()
    num_bytes = np.array([sample.num_bytes for sample in samples], dtype=np.float64)
    us = np.array([sample.us for sample in samples])
    if len(np.unique(num_bytes)) < 2:
        raise BadInputError(
            f"{link} were all timed with the same size, {num_bytes[0]:.0f} bytes; at least two "
            "sizes were expected: time more sizes, from a few bytes to the model's largest tensors."
        )
    if not us.any():
        raise BadInputError(
            f"{link} all took 0 us; times above 0 were expected: measure them with a finer clock."
        )
    latency_us, us_per_byte = _line(num_bytes, us, CLOCK_US)
    if abs(us_per_byte) * num_bytes.max() < ROUNDING * us.max():
        us_per_byte = 0.0
    if us_per_byte < 0:
        raise BadInputError(
            f"{link} take less time the larger they are ({us_per_byte:.3g} us per byte); a time "
            "that grows with the size was expected: time larger transfers, and more of them."
        )
    if latency_us < 0:
        log.warning(
            "%s: the fitted latency is negative (%.3g us); the line was fitted again through the "
            "origin.",
            link,
            latency_us,
        )
        latency_us, us_per_byte = _line_through_origin(num_bytes, us, CLOCK_US)
    r_squared = _r_squared(us, latency_us + us_per_byte * num_bytes)
    if r_squared < DOUBTFUL_R_SQUARED:
        log.warning("%s: the line fits the times badly (R² %.2f).", link, r_squared)
    model = CommModel(latency_us, us_per_byte)
    return CommFit(src_kind, dst_kind, model, r_squared, len(samples), channel)


def fit_overhead(overhead_us: Iterable[tuple[int, float]]) -> tuple[float, float]:
    """Fit the transfer overhead at an endpoint: return (us, us per byte).

    overhead_us: pairs of the bytes of a transfer and the measured overhead in us.

    The fit minimises relative errors, as for transfers. A coefficient that would be negative is 0,
    and the other one is fitted again. With fewer than two sizes both are 0.
    """
    num_bytes, us = np.array([*overhead_us], dtype=np.float64).reshape(-1, 2).T
    if len(np.unique(num_bytes)) < 2:
        return 0.0, 0.0
    fixed_us, us_per_byte = _line(num_bytes, us, OVERHEAD_US)
    if us_per_byte < 0:
        return float(np.average(us, weights=_weight(us, OVERHEAD_US))), 0.0
    if fixed_us < 0:
        return _line_through_origin(num_bytes, us, OVERHEAD_US)
    return fixed_us, us_per_byte


def _line(num_bytes: FloatArray, us: FloatArray, exact_us: float) -> tuple[float, float]:
    """Fit a line by least squares of relative errors: return (us at 0 bytes, us per byte)."""
    weight = _weight(us, exact_us)
    mean_bytes, mean_us = np.average(num_bytes, weights=weight), np.average(us, weights=weight)
    deviation = weight * (num_bytes - mean_bytes)
    us_per_byte = float(deviation @ (us - mean_us) / (deviation @ num_bytes))
    return float(mean_us - us_per_byte * mean_bytes), us_per_byte


def _line_through_origin(
    num_bytes: FloatArray, us: FloatArray, exact_us: float
) -> tuple[float, float]:
    per_byte = _weight(us, exact_us) * num_bytes
    return 0.0, float(per_byte @ us / (per_byte @ num_bytes))


def _weight(us: FloatArray, exact_us: float) -> FloatArray:
    """Return weights that make squared errors relative; times below `exact_us` weigh the same."""
    return 1 / np.maximum(us, exact_us) ** 2


def _r_squared(us: FloatArray, fitted_us: FloatArray) -> float:
    """Return R² = 1 - Σ (us - fitted)² / Σ (us - mean)²; 1 if all times are the same."""
    unexplained = float(((us - fitted_us) ** 2).sum())
    variance = float(((us - us.mean()) ** 2).sum())
    return 1 - unexplained / variance if variance > 0 else 1.0
