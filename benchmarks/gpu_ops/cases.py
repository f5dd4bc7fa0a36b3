"""The largest ops of models of the zoo: `python -m benchmarks.gpu_ops.cases FILE [MODEL]...`.

Of each model, the ops that launch a kernel are taken in order of their total analytic time, until
they make up SHARE of the time of the model. With `--parts N` they are the ops of the step whose
batch is split into N parts.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from pesto_cli import api as pesto
from pesto_cli.data.machine import Efficiency
from pesto_cli.data.presets import H100, PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.data.specs import OpSpec
from pesto_cli.profile.analytic.loose import loose_us
from pesto_cli.sharding.expansion import expand
from pesto_cli.sharding.problems import prices_of
from pesto_cli.sharding.times import split_times_us
from pesto_cli.strategies.data_parallel import batch_plan
from pesto_cli.strategies.devices import accelerators

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
    parser.add_argument("--parts", type=int, default=1, metavar="N", help="split the batch")
    options = parser.parse_args(arguments)
    runs: dict[OpSpec, dict[str, int]] = {}
    total_us: dict[OpSpec, float] = {}
    for model in options.models:
        chosen = largest(model, options.parts)
        for spec, (count, time_us) in chosen.items():
            runs.setdefault(spec, {})[model] = count
            total_us[spec] = total_us.get(spec, 0.0) + count * time_us
        print(f"{model}: {len(chosen)} cases", flush=True)
    ordered = sorted(runs, key=lambda spec: -total_us[spec])
    estimates = estimated(ordered)
    cases = [{**described(spec), **estimates[spec], "runs": runs[spec]} for spec in ordered]
    options.file.write_text(json.dumps({"cases": cases}))


def largest(model: str, num_parts: int) -> Mapping[OpSpec, tuple[int, float]]:
    """Return the number and the time in us of each of the largest ops that launch a kernel."""
    machine = replace(MACHINE, kinds={**MACHINE.kinds, "GPU": replace(H100, efficiency={})})
    # Only a profile with prices of parts has the specs of ops.
    problem = pesto.profile(
        pesto.export(f"zoo:{model}"), machine, parts=(max(2, num_parts),)
    ).problem
    times_us: dict[OpSpec, list[float]] = {}
    left_us = 0.0
    for spec, time_us in ops_of_step(problem, num_parts):
        if time_us > H100.no_launch_us:
            left_us += time_us
            if spec is not None:
                times_us.setdefault(spec, []).append(time_us)
    chosen: dict[OpSpec, tuple[int, float]] = {}
    rest_us = (1 - SHARE) * left_us
    for spec, each_us in sorted(times_us.items(), key=lambda item: -sum(item[1])):
        if left_us <= rest_us:
            break
        chosen[spec] = len(each_us), each_us[0]
        left_us -= sum(each_us)
    return chosen


def ops_of_step(problem: Problem, num_parts: int) -> Iterator[tuple[OpSpec | None, float]]:
    """Yield the spec and the time in us of each op, of a step that is split or whole."""
    parts = prices_of(problem)
    specs = parts.op_specs
    time_us = problem.time_us
    if num_parts > 1:
        plan = batch_plan(problem, accelerators(problem)[:num_parts])
        expansion = expand(problem.graph, specs, plan)
        specs = [expansion.ops.specs[op] for op in expansion.kept]
        time_us = split_times_us(problem, parts, expansion)
    yield from zip(specs, np.nanmin(time_us, axis=1).tolist(), strict=True)


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
