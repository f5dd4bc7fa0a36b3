"""The largest ops of models of the zoo: `python -m benchmarks.gpu_ops.cases FILE [MODEL]...`.

Of each model, the ops that launch a kernel are taken in order of their total analytic time, until
they make up SHARE of the time of the model.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from pesto_cli import api as pesto
from pesto_cli.data.machine import Efficiency
from pesto_cli.data.presets import H100, PRESETS
from pesto_cli.data.specs import OpSpec
from pesto_cli.profile.analytic.loose import loose_us

MODELS = (
    "RNNLM-2-2048",
    "NMT-2-1024",
    "Transformer-6-16-2048",
    "BERT-large",
    "XLNet-large",
    "NASNet-4-212",
    "VGG-19",
    "ResNet-200",
    "Inception-v3@batch=64",
    "MobileNet-v2",
)
MACHINE = PRESETS["h100x8-nvswitch"]
SHARE = 0.98
UNLIMITED = 1e6
"""An efficiency with which a term of the estimate takes no time."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Profile the models, and write the cases as JSON, those with the most time first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    options = parser.parse_args(arguments)
    runs: dict[OpSpec, dict[str, int]] = {}
    total_us: dict[OpSpec, float] = {}
    for model in options.models:
        chosen = largest(model)
        for spec, (count, time_us) in chosen.items():
            runs.setdefault(spec, {})[model] = count
            total_us[spec] = total_us.get(spec, 0.0) + count * time_us
        print(f"{model}: {len(chosen)} cases", flush=True)
    ordered = sorted(runs, key=lambda spec: -total_us[spec])
    estimates = estimated(ordered)
    cases = [{**described(spec), **estimates[spec], "runs": runs[spec]} for spec in ordered]
    options.file.write_text(json.dumps({"cases": cases}))


def largest(model: str) -> Mapping[OpSpec, tuple[int, float]]:
    """Return the number and the time in us of each of the largest ops that launch a kernel.

    Only a profile with prices of parts has the specs of ops.
    """
    machine = replace(MACHINE, kinds={**MACHINE.kinds, "GPU": replace(H100, efficiency={})})
    problem = pesto.profile(pesto.export(f"zoo:{model}"), machine, parts=(2,)).problem
    assert problem.parts is not None
    time_us = np.nanmin(problem.time_us, axis=1)
    launched = time_us > H100.no_launch_us
    ops_of: dict[OpSpec, list[int]] = {}
    for op in np.flatnonzero(launched).tolist():
        spec = problem.parts.spec(op)
        if spec is not None:
            ops_of.setdefault(spec, []).append(op)
    chosen: dict[OpSpec, tuple[int, float]] = {}
    rest_us = (1 - SHARE) * time_us[launched].sum()
    left_us = time_us[launched].sum()
    for spec, ops in sorted(ops_of.items(), key=lambda item: -float(time_us[item[1]].sum())):
        if left_us <= rest_us:
            break
        chosen[spec] = len(ops), float(time_us[ops[0]])
        left_us -= time_us[ops].sum()
    return chosen


def estimated(specs: Sequence[OpSpec]) -> Mapping[OpSpec, Mapping[str, float]]:
    """Return the two terms of the analytic estimate: of the arithmetic and of the memory, in us."""
    terms = {
        "compute_us": Efficiency(memory=UNLIMITED),
        "memory_us": Efficiency(arithmetic=UNLIMITED),
    }
    kinds = {
        name: replace(H100, launch_us=0.0, no_launch_us=0.0, efficiency={"": reached})
        for name, reached in terms.items()
    }
    us = loose_us(dict.fromkeys(terms, specs), kinds)
    return {spec: {name: us[name][spec] for name in terms} for spec in specs}


def described(spec: OpSpec) -> dict[str, Any]:
    """Return a spec for JSON."""
    return {
        "type": spec.type,
        "attributes": spec.attribute,
        "inputs": [asdict(operand) for operand in spec.inputs],
        "outputs": [asdict(operand) for operand in spec.outputs],
    }


if __name__ == "__main__":
    main()
