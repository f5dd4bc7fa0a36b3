"""The placements of each model: by hand, and pesto's own."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pesto_cli import api as pesto
from pesto_cli.coarsen.layers import layers_of_groups
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import Profile
from pesto_cli.refine import refine
from pesto_cli.strategies.data_parallel import DataParallel
from pesto_cli.strategies.devices import fastest_device
from pesto_cli.strategies.order import ordered
from pesto_cli.strategies.run import judged

# Pesto's own placements: of whole ops, without and with a robust search; of a batch that is always
# split; and of what the search splits, which may be nothing.
PLAIN, ROBUST, SPLIT, PARTED = "pesto", "pesto --robust", "split", "pesto --parts"
OWN = (PLAIN, ROBUST, SPLIT, PARTED)


def exported(model: str) -> Any:
    """Return the training step of a model of `models` as a MetaGraphDef."""
    with TemporaryDirectory() as folder:
        script = Path(folder) / "model.py"
        script.write_text(
            "from benchmarks.fidelity.models import MODELS\n"
            f"def build():\n    return MODELS[{model!r}]()\n"
        )
        return pesto.export(f"{script}:build")


def placements(profile: Profile, limits: pesto.Limits) -> Iterator[Result]:
    """Yield the placements: of whole ops by several strategies, and of a split batch."""
    whole, context = pesto.limit_parts(profile, 1), pesto.Context(limits)
    yield from pesto.compare(whole, ["single", "expert"])
    yield random_by_layer(whole.problem, limits.seed)
    yield pesto.solve(whole, PLAIN, context)
    yield replace(pesto.solve(whole, PLAIN, context, robust=True), strategy=ROBUST)
    yield split_by_batch(profile.problem, limits)
    yield replace(pesto.solve(profile, PLAIN, context), strategy=PARTED)


def split_by_batch(problem: Problem, limits: pesto.Limits) -> Result:
    """Split the batch, part i on device i, and refine; also if whole ops are faster."""
    found = DataParallel()(problem, pesto.Context(limits))
    simulator = Simulator(found.problem)
    schedule = refine(simulator, [found.schedule], limits, lower_bound_us=found.lower_bound_us)
    return judged(SPLIT, replace(found, schedule=schedule), 0.0)


def random_by_layer(problem: Problem, seed: int) -> Result:
    """Put each layer on a random device; ops that may not run there go to their fastest device."""
    layers = layers_of_groups(problem.graph, problem.min_duration_us)
    random = np.random.default_rng(seed)
    device_of_layer = random.integers(problem.num_devices, size=len(layers.names))
    device = device_of_layer[layers.of_group]
    allowed = problem.group_allowed[np.arange(len(device)), device]
    device = np.where(allowed, device, fastest_device(problem))
    schedule = ordered(Simulator(problem), device[problem.graph.colocation_group])
    return judged("random by layer", Solution.of(problem, schedule), 0.0)
