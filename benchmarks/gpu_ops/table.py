"""Analytic times against measured ones: `python -m benchmarks.gpu_ops.table [RESULT [OTHER]]`.

For each family of ops, prints the efficiencies that fit the measured times best, and the errors of
the estimates at the peak rates and with the efficiencies of the kind H100; for each model, the sums
of the times of its ops. An error is the sum of |estimate - measured| over all runs of ops, divided
by the sum of the measured times. Only cases whose estimate at the peak rates is above the time of a
launch count. The fit uses the ops of whole steps, and of steps whose batch is split into NUM_PARTS
parts. OTHER: times of a GPU that was not used for the fit.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from pesto_cli.data.efficiencies import H100_FAMILIES, Family
from pesto_cli.data.graph import FloatArray
from pesto_cli.data.machine import Efficiency
from pesto_cli.data.presets import H100
from pesto_cli.report.markdown import markdown_table

FOLDER = Path(__file__).parent
NUM_PARTS = 4
# TF32 on tensor cores: 494.7 TFLOPS without sparsity, 66.9 of float32 (NVIDIA's data sheet).
MOST_ARITHMETIC = 494.7 / 66.9
# H200: as the H100, with 4800 GB/s (NVIDIA's data sheet).
BANDWIDTH_GB_S = {"NVIDIA H100 80GB HBM3": H100.bandwidth_gb_s, "NVIDIA H200": 4800.0}
PEAK = Efficiency()


@dataclass(frozen=True)
class Times:
    """The cases of one family with an estimate above a launch, `[num_cases]` each.

    runs: in all models. arithmetic_us, memory_us: the terms of the estimate at the peak rates.
    us, float32_us: measured, with and without TF32; NaN where there is no measurement.
    """

    runs: FloatArray
    arithmetic_us: FloatArray
    memory_us: FloatArray
    us: FloatArray
    float32_us: FloatArray

    def estimates_us(self, efficiency: Efficiency) -> FloatArray:
        """Return the estimates of the kernels."""
        return efficiency.estimate_us(self.arithmetic_us, self.memory_us)

    def error(self, efficiency: Efficiency) -> float:
        """Return the error of the estimates."""
        off_us = np.abs(self.estimates_us(efficiency) - self.us)
        return float(self.runs @ off_us / (self.runs @ self.us))

    def joined(self, other: "Times") -> "Times":
        """Return the cases of both."""
        return Times(*map(np.concatenate, zip(astuple(self), astuple(other), strict=True)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path, nargs="?", default=FOLDER / "H100.json")
    parser.add_argument("other", type=Path, nargs="?", default=FOLDER / "H200.json")
    options = parser.parse_args(arguments)
    measured, other = (json.loads(path.read_text()) for path in (options.result, options.other))
    for device in (measured["device"], other["device"]):
        if device not in BANDWIDTH_GB_S:
            parser.error(f"the bandwidth of {device} is not known; add it to BANDWIDTH_GB_S")
    print(families(measured, stored("parts"), other), models(measured), split_models(), sep="\n\n")


def families(
    measured: Mapping[str, Any], of_parts: Mapping[str, Any], other: Mapping[str, Any]
) -> str:
    """Return the table of families."""
    rows = []
    for name, family in H100_FAMILIES.items():
        found = [times(each, family) for each in (measured, of_parts, other)]
        here, parts, _ = found
        fit = fitted(here.joined(parts), family)
        rows.append(
            [
                name,
                str(len(here.us)),
                str(len(parts.us)),
                "" if fit.arithmetic == 1 else f"{fit.arithmetic:.2f}",
                f"{fit.memory:.2f}",
                f"{fit.start_us:.1f}" if fit.start_us else "",
                f"{here.error(PEAK):.0%}",
                *(f"{each.error(family.efficiency):.0%}" if len(each.us) else "" for each in found),
                "" if np.isnan(here.float32_us).all() else f"{slower(here):.1f}",
            ]
        )
    columns = ["family", "whole", "parts", "arithmetic", "memory", "start us"]
    errors = ["error at peak rates", "error", "of parts", "on H200"]
    return markdown_table([*columns, *errors, "without TF32"], rows)


def slower(found: Times) -> float:
    """Return the median ratio of the time without TF32 to that with it."""
    return float(np.nanmedian(found.float32_us / found.us))


def times(measured: Mapping[str, Any], family: Family) -> Times:
    """Return the times of the cases of a family."""
    faster = BANDWIDTH_GB_S[measured["device"]] / H100.bandwidth_gb_s
    rows = [
        [
            sum(case["runs"].values()),
            case["compute_us"],
            case["memory_us"] / faster,
            *(case.get(key) or np.nan for key in ("us", "float32_us")),
        ]
        for case in measured["cases"]
        if case["type"] in family.op_types and "us" in case and is_large(case)
    ]
    return Times(*np.array(rows, dtype=float).reshape(-1, 5).T)


def is_large(case: Mapping[str, Any]) -> bool:
    """Whether the estimate of a case is above the time of a launch."""
    return bool(case["compute_us"] + case["memory_us"] > H100.launch_us)


def fitted(found: Times, family: Family) -> Efficiency:
    """Return the efficiency with the least sum of |log(estimate / measured)|, weighted by time."""
    weights, known = found.runs * found.us, family.efficiency

    def efficiency(logarithms: FloatArray) -> Efficiency:
        arithmetic, memory, start_us = np.exp(logarithms)
        return Efficiency(
            arithmetic if known.arithmetic != 1 else 1.0, memory, start_us if known.start_us else 0
        )

    def loss(logarithms: FloatArray) -> float:
        return float(
            weights @ np.abs(np.log(found.estimates_us(efficiency(logarithms)) / found.us))
        )

    least, most_start_us = np.log(0.01), np.log(100)
    bounds = [(least, np.log(MOST_ARITHMETIC)), (least, 0.0), (least, most_start_us)]
    starts = [(0.0, -0.1, 0.0), (1.0, -0.5, 1.0), (1.9, -0.4, 2.0)]
    fits = [
        minimize(loss, start, method="Nelder-Mead", bounds=bounds, options={"maxiter": 4000})
        for start in starts
    ]
    return efficiency(min(fits, key=lambda fit: float(fit.fun)).x)


@dataclass(frozen=True)
class Sums:
    """The times of the ops of a model in ms; estimates are at least the time of a launch.

    peak, efficient: estimated at the peak rates, and with the efficiencies. kernels: measured.
    """

    peak: float
    efficient: float
    kernels: float


def sums(measured: Mapping[str, Any], model: str) -> Sums:
    """Return the sums over the cases of a model that were timed."""
    found_us = np.zeros(3)
    for case in measured["cases"]:
        if model in case["runs"] and "us" in case:
            kernels_us = [
                each.estimate_us(case["compute_us"], case["memory_us"])
                for each in (PEAK, H100.efficiency_of(case["type"]))
            ]
            estimates_us = np.maximum(kernels_us, H100.launch_us)
            found_us += case["runs"][model] * np.array([*estimates_us, case["us"]])
    return Sums(*(found_us / 1e3))


def stored(name: str) -> Mapping[str, Any]:
    """Return a file of measurements on H100s."""
    found: Mapping[str, Any] = json.loads((FOLDER / f"H100.{name}.json").read_text())
    return found


def steps_ms(num_parts: int = 1) -> Mapping[str, float]:
    """Return the steps of models in PyTorch on the H100, by `torch_models`.

    num_parts: by how much the batch was divided.
    """
    return {model: found[str(num_parts)] for model, found in stored("steps").items()}


def split_models() -> str:
    """Return the table of the steps whose batch is split: the work of all parts in ms.

    In brackets: relative to the work of the whole step.
    """
    whole, split = json.loads((FOLDER / "H100.json").read_text()), stored("parts")
    steps, of_parts = steps_ms(), steps_ms(NUM_PARTS)

    def cell(after_ms: float, before_ms: float) -> str:
        return f"{after_ms:.1f} ({after_ms / before_ms:.2f}x)"

    rows = []
    for model in dict.fromkeys(model for case in whole["cases"] for model in case["runs"]):
        before, after = sums(whole, model), sums(split, model)
        step = cell(NUM_PARTS * of_parts[model], steps[model]) if model in steps else ""
        estimate, kernels = (
            cell(after.efficient, before.efficient),
            cell(after.kernels, before.kernels),
        )
        rows.append([model, estimate, kernels, step])
    columns = ["model", "with efficiencies", "measured", f"{NUM_PARTS} steps in PyTorch"]
    return markdown_table(columns, rows)


def models(measured: Mapping[str, Any]) -> str:
    """Return the table of models."""
    rows = []
    for model in dict.fromkeys(model for case in measured["cases"] for model in case["runs"]):
        found = sums(measured, model)
        ms = [found.peak, found.efficient, found.kernels, steps_ms().get(model)]
        rows.append([model, *("" if each is None else f"{each:.1f}" for each in ms)])
    columns = ["model", "at peak rates", "with efficiencies", "measured", "step in PyTorch"]
    return markdown_table(columns, rows)


if __name__ == "__main__":
    main()
