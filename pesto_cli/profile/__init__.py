"""Profiles: the op times of a training step on a machine, and the communication models of links.

A cost source is a function `CostRequest -> Costs`. To add one, write a file with this function and
add a line to `SOURCES`.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

import pesto_cli
from pesto_cli.data.binding import binding_note
from pesto_cli.data.graph import FloatArray, IntArray, OpGraph
from pesto_cli.data.labels import Role
from pesto_cli.data.machine import Machine, short_list
from pesto_cli.data.parts import check_numbers
from pesto_cli.data.problem import Problem
from pesto_cli.files import CommFit, Profile, with_comm
from pesto_cli.graphdef.read import StepGraph, read_step
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.plugins import Registry, answered, called_with
from pesto_cli.printable import logger
from pesto_cli.profile import analytic, csv_source
from pesto_cli.profile.parts import priced_parts
from pesto_cli.profile.parts.coverage import whole_ops
from pesto_cli.profile.parts.kinds import stand_in_notes
from pesto_cli.profile.run import source as run_source
from pesto_cli.profile.source import CostRequest, Costs, Live, Source
from pesto_cli.profile.traces import source as trace_source

log = logger(__name__)

LEAST_SHARE = 1e-3
"""Share of memory or traffic. Estimated sizes that add up to less than this cause no note."""

SOURCES: Registry[Source] = Registry(
    "pesto.sources",
    {
        "analytic": analytic.costs,
        "csv": csv_source.costs,
        "run": run_source.costs,
        "trace": trace_source.costs,
    },
    called_with("request"),
)


def profile(
    meta_graph: Any,
    machine: Machine,
    *,
    source: str = "analytic",
    cpu_offload: bool = False,
    comm: list[CommFit] | None = None,
    live: Live | None = None,
    parts: Sequence[int] = (),
    what: str = "the graph",
) -> Profile:
    """Read a training step and return its profile: the time of every op on every device kind.

    Args:
        meta_graph: a MetaGraphDef that names its fetches.
        machine: the machine that the step is placed on.
        source: a name in `SOURCES`; an argument follows after a colon (`csv:FILE`).
        cpu_offload: give ops that a GPU can run a time on the CPU too.
        comm: fitted communication models, which replace those of the machine's links.
        live: the real devices, for sources that measure on them.
        parts: the numbers of parts whose prices are added, ascending; none by default.
        what: the name of the graph in error messages.

    Raises:
        BadInputError: the source is unknown, or graph, machine and costs do not fit together.
        InfeasibleError: no device can run an op or a colocation group.
        EnvironmentFailedError: a process that computes costs died, or a plug-in failed.
    """
    name, _, argument = source.partition(":")
    SOURCES.find(name)
    if parts:
        check_numbers(parts)
    if comm is not None:
        machine = with_comm(machine, comm)
    step = read_step(meta_graph, what)
    request = CostRequest(step, meta_graph, machine, argument, cpu_offload, live)
    with SOURCES.at_work(name) as costs_of:
        costs = answered(Costs, costs_of(request))
        problem = _problem(step.graph, costs, machine)
    priced: dict[str, Any] = {}
    if parts:
        problem, priced = _with_parts(step, problem, parts, request, name)
    graph, machine = problem.graph, problem.machine
    notes = [*costs.notes, *_size_notes(step, graph, machine), *_device_notes(step, problem)]
    notes += priced.pop("notes", ())
    for note in filter(None, (*notes, binding_note(problem))):
        log.warning("%s", note)
    provenance = {
        "graph_hash": step.graph_hash,
        "pesto_version": pesto_cli.__version__,
        "tensorflow_version": tensorflow().__version__,
        "source": source,
        "num_runs": costs.num_runs,
        "notes": notes,
    }
    if costs.coverage is not None:
        provenance["coverage"] = asdict(costs.coverage)
    if costs.reconciled:
        provenance["reconciled"] = [asdict(account) for account in costs.reconciled]
    if priced:
        provenance["parts"] = priced
    program_device = step.program_device if any(step.program_device) else None
    return Profile(problem, provenance, spread=costs.spread, program_device=program_device)


def _problem(graph: OpGraph, costs: Costs, machine: Machine) -> Problem:
    """Return the problem with the op times, tensor sizes and machine that a source has found."""
    machine = costs.machine or machine
    if costs.tensor_bytes is not None:
        graph = replace(graph, tensor_bytes=costs.tensor_bytes)
    return Problem.build(graph, _with_free_feeds(graph, costs.time_us, machine), machine)


def _with_parts(
    step: StepGraph,
    problem: Problem,
    numbers: Sequence[int],
    request: CostRequest,
    source: str,
) -> tuple[Problem, dict[str, Any]]:
    """Return the problem with prices of parts, and what the provenance says of them."""
    live = request.live
    priced = priced_parts(
        step,
        problem,
        numbers,
        cpu_offload=request.cpu_offload,
        cluster=None if live is None else live.cluster,
        limit_s=math.inf if live is None else live.limit_s,
    )
    notes = [account.text for account in priced.accounts] or [
        *_ratio_note(source),
        *stand_in_notes(problem.machine),
    ]
    origin: dict[str, Any] = {
        "numbers": list(numbers),
        "source": "run" if priced.accounts else "analytic",
        "whole_ops": [asdict(row) for row in whole_ops(problem, priced.parts)],
        "notes": notes,
    }
    if priced.accounts:
        origin["measured"] = [asdict(account) for account in priced.accounts]
    return replace(problem, parts=priced.parts), origin


def _ratio_note(source: str) -> Iterator[str]:
    """Yield a note if parts and whole ops get their times from different sources."""
    if source != "analytic":
        yield (
            f"the source {source} has no times of parts: a part takes the share of its op's time "
            "that the analytic source estimates; ops that a split adds take analytic times."
        )


def _device_notes(step: StepGraph, problem: Problem) -> Iterator[str]:
    """Yield a note if the program sets a device (tf.device) for ops that may run on others too."""
    has_choice = problem.allowed.sum(axis=1) > 1
    put = Counter(
        name for name, free in zip(step.program_device, has_choice, strict=True) if name and free
    )
    if put:
        count = sum(put.values())
        yield (
            f"the program sets the device of {'1 op' if count == 1 else f'{count} ops'} with "
            f"tf.device ({short_list(sorted(put))}); pesto ignores this and places them freely, "
            "unless the profile is solved with `pesto solve --keep-devices`."
        )


def _size_notes(step: StepGraph, graph: OpGraph, machine: Machine) -> Iterator[str]:
    """Yield notes on tensors whose sizes were not measured.

    Estimated sizes, which depend on the data, are noted if they are large (`LEAST_SHARE`). Unknown
    sizes are always noted.
    """
    is_measured = graph.tensor_bytes != step.graph.tensor_bytes
    estimated = np.flatnonzero(step.estimated & ~step.size_unknown & ~is_measured)
    if graph.tensor_bytes[estimated].sum() > LEAST_SHARE * _large_bytes(graph, machine):
        yield (
            f"the size of {_tensors(len(estimated))} depends on the data and was estimated from "
            f"the inputs of {'its op' if len(estimated) == 1 else 'their ops'}: "
            f"{_largest(graph, estimated)}; give measured sizes for exact ones (pesto profile "
            "--source csv:FILE)."
        )
    unknown = np.flatnonzero(step.size_unknown & ~is_measured)
    if len(unknown):
        yield (
            f"the size of {_tensors(len(unknown))} is unknown: open dimensions count as 1, which "
            f"is probably far too small: {_largest(graph, unknown)}; give measured sizes "
            "(pesto profile --source csv:FILE, or a trace of RunMetadata)."
        )


def _large_bytes(graph: OpGraph, machine: Machine) -> int:
    """Return the smaller of the largest device memory and the sum of all tensors, in bytes."""
    most = max(device.memory_bytes for device in machine.devices)
    return min(most, int(graph.tensor_bytes.sum()))


def _tensors(count: int) -> str:
    return "1 tensor" if count == 1 else f"{count} tensors"


def _largest(graph: OpGraph, tensors: IntArray) -> str:
    """Return a phrase that names the op and the size of the largest of some tensors."""
    largest = tensors[np.argmax(graph.tensor_bytes[tensors])]
    what = "the largest, an output" if len(tensors) > 1 else "an output"
    name, num_bytes = graph.names[graph.tensor_producer[largest]], graph.tensor_bytes[largest]
    return f"{what} of {name!r}, counts as {num_bytes:,} bytes"


def _with_free_feeds(
    graph: OpGraph, time_us: Mapping[str, FloatArray], machine: Machine
) -> dict[str, FloatArray]:
    """Return op times where feeds and fetches take 0 us on the host and cannot run elsewhere.

    On a machine without a host they take 0 us on every device.
    """
    is_free = graph.labels.has_role(Role.FEED, Role.FETCH)
    host_kind = None if machine.host is None else machine.devices[machine.host].kind
    unknown = {} if host_kind is None else {host_kind: np.full(graph.num_ops, np.nan)}
    return {
        kind: np.where(is_free, 0.0 if host_kind in (None, kind) else np.nan, column)
        for kind, column in {**unknown, **time_us}.items()
    }
