"""On which kinds of device an op gets its measured time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import BoolArray
from pesto_cli.errors import BadInputError
from pesto_cli.profile.affinity import affinity
from pesto_cli.profile.measured.attributed import Attributed
from pesto_cli.profile.source import CostRequest


@dataclass(frozen=True, eq=False)
class MeasuredAffinity:
    """Where the ops of a step get their times.

    place_of: kind of device of the machine -> the place whose times it takes: its own, or that of
        its type.
    may_run: kind -> `[num_ops]`, where an op gets a time.
    in_pieces: `[num_ops]`, of a group that has to share a device and was measured on several
        types, one op here, another there: each takes the same time wherever it may run.
    """

    place_of: Mapping[str, str]
    may_run: Mapping[str, BoolArray]
    in_pieces: BoolArray


def measured_affinity(found: Attributed, request: CostRequest, what: str) -> MeasuredAffinity:
    """Return where the ops get their times.

    An op can run where all of its colocation group that ran did run. Measured on several types, it
    keeps that of `affinity`: one, or both with `cpu_offload`. Groups that never ran, or that were
    measured in pieces, go where `affinity` says.

    Raises:
        BadInputError: ops were measured on devices that the machine lacks.
    """
    machine = request.machine
    type_of = {device.kind: machine.device_type(device.kind) for device in machine.devices}
    place_of = {kind: kind if kind in found.us else name for kind, name in type_of.items()}
    _check_places(found, place_of, request, what)
    is_usual = _usual(found, place_of, request)
    whole = {kind: _whole(found, place, kind, request) for kind, place in place_of.items()}
    anywhere = _any(whole)
    as_usual = _any({kind: whole[kind] & is_usual[kind] for kind in whole})
    return MeasuredAffinity(
        place_of=place_of,
        may_run={
            kind: np.where(anywhere, whole[kind] & (is_usual[kind] | ~as_usual), is_usual[kind])
            for kind in whole
        },
        in_pieces=found.has_run & ~anywhere,
    )


def affinity_notes(
    where: MeasuredAffinity, found: Attributed, request: CostRequest
) -> Iterator[str]:
    """Yield what the user should know of it."""
    for place in dict.fromkeys(where.place_of.values()):
        kinds = [kind for kind, own in where.place_of.items() if own == place]
        if place not in found.us:
            yield (
                f"nothing was measured on {place}, so that no op that ran can be placed on "
                f"{' or '.join(kinds)}: measure a step there too."
            )
        elif len(kinds) > 1:
            yield (
                f"what was measured on {place} serves {' and '.join(kinds)} alike: give their "
                "devices a `speed`, or measure each."
            )
    if where.in_pieces.any():
        name = request.step.graph.names[int(np.argmax(where.in_pieces))]
        yield (
            f"{np.count_nonzero(where.in_pieces)} ops that have to share a device, such as "
            f"{name!r}, were measured on several types: each is taken to take the same wherever "
            "it runs."
        )


def _check_places(
    found: Attributed, place_of: Mapping[str, str], request: CostRequest, what: str
) -> None:
    served = {place: found.num_nodes[place] > 0 for place in place_of.values() if place in found.us}
    foreign = np.flatnonzero(found.has_run & ~(_any(served) if served else False))
    if len(foreign):
        others = ", ".join(sorted(set(found.us) - set(served)))
        raise BadInputError(
            f"{what} has {len(foreign)} ops, such as {request.step.graph.names[foreign[0]]!r}, on "
            f"{others} alone, where the machine has {', '.join(place_of)}; times on devices of the "
            "machine were expected: take a machine that has those of the trace."
        )


def _usual(
    found: Attributed, place_of: Mapping[str, str], request: CostRequest
) -> dict[str, BoolArray]:
    """Kind -> `[num_ops]`, where `affinity` would have an op, among the kinds with measurements.

    What it would have elsewhere may run on any of these that its group can; what then is left has
    to go without measurements.
    """
    type_of = {kind: request.machine.device_type(kind) for kind in place_of}
    nowhere = np.zeros_like(found.has_run)
    asked = affinity(request)
    usual = {kind: asked.get(name, nowhere) for kind, name in type_of.items()}
    measured = {kind for kind, place in place_of.items() if place in found.us}
    there = {kind: usual[kind] if kind in measured else nowhere for kind in usual}
    left = ~_any(there)
    able = {
        kind: left & _together(request.step.supported[name], request)
        if kind in measured
        else nowhere
        for kind, name in type_of.items()
    }
    left &= ~_any(able)
    return {kind: there[kind] | able[kind] | (left & usual[kind]) for kind in usual}


def _whole(found: Attributed, place: str, kind: str, request: CostRequest) -> BoolArray:
    """`[num_ops]`: whether a group ran at a place as a whole, and has kernels for all of it."""
    graph = request.step.graph
    if place not in found.us:
        return np.zeros(graph.num_ops, dtype=np.bool_)
    supported = request.step.supported[request.machine.device_type(kind)]
    fits = supported & (found.is_whole(place) | ~found.has_run)
    return _together(fits, request) & ~_together(~found.has_run, request)


def _together(flags: BoolArray, request: CostRequest) -> BoolArray:
    """`[num_ops]`: whether all of an op's colocation group are flagged."""
    groups = request.step.graph.colocation_group
    together = np.ones(request.step.graph.num_groups, dtype=np.bool_)
    np.logical_and.at(together, groups, flags)
    everywhere: BoolArray = together[groups]
    return everywhere


def _any(flags: Mapping[str, BoolArray]) -> BoolArray:
    union: BoolArray = np.logical_or.reduce(list(flags.values()))
    return union
