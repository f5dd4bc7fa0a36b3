"""Communication models: latency and slope of each kind of link, fitted to timed transfers."""

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pesto_cli.errors import BadInputError
from pesto_cli.files import CommFit
from pesto_cli.graph import FloatArray
from pesto_cli.machine import CommModel
from pesto_cli.profile.table import read_rows

log = logging.getLogger(__name__)

# The fits of Pesto, Section 3.1, have 0.92 to 0.99.
DOUBTFUL_R_SQUARED = 0.9


@dataclass(frozen=True)
class Sample:
    """One timed transfer between two kinds of device."""

    src_kind: str
    dst_kind: str
    num_bytes: int
    us: float


def read_samples(path: Path) -> list[Sample]:
    """Timed transfers from a CSV file with the columns src_kind, dst_kind, bytes, us.

    Raises:
        BadInputError: the file cannot be read or a row is damaged; with its line.
    """
    samples = [
        Sample(row.text("src_kind"), row.text("dst_kind"), row.num_bytes("bytes"), row.amount("us"))
        for row in read_rows(path, ("src_kind", "dst_kind", "bytes", "us"))
    ]
    if not samples:
        raise BadInputError(f"{path} has no transfers; at least two for a kind were expected.")
    return samples


def fit(samples: Iterable[Sample]) -> list[CommFit]:
    """Fit every kind of link that was timed, in order of appearance.

    Transfers timed on a machine and those read from a file enter here alike. The floor `min_us` of
    the model stays 0: a line has none.

    Raises:
        BadInputError: a kind of link has too few sizes, or larger transfers take less time.
    """
    by_kinds = defaultdict(list)
    for sample in samples:
        by_kinds[sample.src_kind, sample.dst_kind].append(sample)
    return [_fit_link(src, dst, timed) for (src, dst), timed in by_kinds.items()]


def _fit_link(src_kind: str, dst_kind: str, samples: list[Sample]) -> CommFit:
    """Ordinary least squares (Pesto, Section 3.1): us = latency_us + us_per_byte * bytes."""
    link = f"transfers {src_kind} -> {dst_kind}"
    num_bytes = np.array([sample.num_bytes for sample in samples], dtype=np.float64)
    us = np.array([sample.us for sample in samples])
    if len(np.unique(num_bytes)) < 2:
        raise BadInputError(
            f"{link} were timed with the one size of {num_bytes[0]:.0f} bytes; at least two sizes "
            "were expected: time more, from a few bytes to what the model sends."
        )
    deviation = num_bytes - num_bytes.mean()
    us_per_byte = float(deviation @ us / (deviation @ deviation))
    latency_us = float(us.mean() - us_per_byte * num_bytes.mean())
    if us_per_byte < 0:
        raise BadInputError(
            f"{link} take {-us_per_byte:.3g} us a byte less the larger they are; a time that grows "
            "with the size was expected: time larger transfers, and more of them."
        )
    if latency_us < 0:
        log.warning(
            "%s: the line has a latency of %.3g us; it was fitted again through the origin.",
            link,
            latency_us,
        )
        us_per_byte, latency_us = float(num_bytes @ us / (num_bytes @ num_bytes)), 0.0
    r_squared = _r_squared(us, latency_us + us_per_byte * num_bytes)
    if r_squared < DOUBTFUL_R_SQUARED:
        log.warning("%s: the line explains little of the times (R² %.2f).", link, r_squared)
    model = CommModel(latency_us, us_per_byte)
    return CommFit(src_kind, dst_kind, model, r_squared, len(samples))


def _r_squared(us: FloatArray, fitted_us: FloatArray) -> float:
    """R² = 1 - Σ (us - fitted)² / Σ (us - mean)²; 1 where all times are the same and met."""
    unexplained = float(((us - fitted_us) ** 2).sum())
    variance = float(((us - us.mean()) ** 2).sum())
    return 1 - unexplained / variance if variance > 0 else 1.0
