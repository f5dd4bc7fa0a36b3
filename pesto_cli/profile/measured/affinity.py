"""The device kinds on which an op gets its measured time."""

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
    """The kinds on which the ops of a step get a time, and the places that the times come from.

    place_of: device kind of the machine -> the place whose times it uses: the kind itself if it
        was measured, else its device type.
    may_run: kind -> `[num_ops]`, whether an op gets a time on the kind.
    in_pieces: `[num_ops]`, whether an op's colocation group was split over several device types
        in the measurement. Such an op has the same time on every kind that may run it.
    """

    place_of: Mapping[str, str]
    may_run: Mapping[str, BoolArray]
    in_pieces: BoolArray


def measured_affinity(found: Attributed, request: CostRequest, what: str) -> MeasuredAffinity:
    """Return the kinds on which each op gets a time.

    An op can run on a kind if all measured ops of its colocation group were measured there. If the
    group was measured on several types, those that `affinity` names are chosen: one, or both with
    `cpu_offload`. Groups that never ran, or that were split over several types, get the types of
    `affinity`.

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
    """Yield notes for the user on places without a measurement and on times used more than once."""
    for place in dict.fromkeys(where.place_of.values()):
        kinds = [kind for kind, own in where.place_of.items() if own == place]
        if place not in found.us:
            yield (
                f"no op was measured on {place}, so no op of the measurement can be placed on "
                f"{' or '.join(kinds)}: measure a step there too."
            )
        elif len(kinds) > 1:
            yield (
                f"the times measured on {place} are used for {' and '.join(kinds)}: give "
                "their devices a `speed`, or measure each kind."
            )
    if where.in_pieces.any():
        name = request.step.graph.names[int(np.argmax(where.in_pieces))]
        yield (
            f"{np.count_nonzero(where.in_pieces)} ops, such as {name!r}, are in colocation groups "
            "that were split over several device types in the measurement: each of them is assumed "
            "to take the same time on every device."
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
            f"{others} only, but the machine has {', '.join(place_of)}; times on devices of the "
            "machine were expected: give a machine with the devices of the trace."
        )


def _usual(
    found: Attributed, place_of: Mapping[str, str], request: CostRequest
) -> dict[str, BoolArray]:
    """Return kind -> `[num_ops]`: the kinds for ops whose measurement does not decide.

    These are the kinds of `affinity` that were measured. If there are none, they are all measured
    kinds that can run the whole colocation group; if there are none either, the unmeasured kinds
    of `affinity`.
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
    """`[num_ops]`: whether an op's whole group was measured at a place and has kernels there.

    Members that never ran need only a kernel. Groups that never ran do not count.
    """
    graph = request.step.graph
    if place not in found.us:
        return np.zeros(graph.num_ops, dtype=np.bool_)
    supported = request.step.supported[request.machine.device_type(kind)]
    fits = supported & (found.is_whole(place) | ~found.has_run)
    return _together(fits, request) & ~_together(~found.has_run, request)


def _together(flags: BoolArray, request: CostRequest) -> BoolArray:
    """`[num_ops]`: whether the flag is true for all members of the op's colocation group."""
    groups = request.step.graph.colocation_group
    together = np.ones(request.step.graph.num_groups, dtype=np.bool_)
    np.logical_and.at(together, groups, flags)
    everywhere: BoolArray = together[groups]
    return everywhere


def _any(flags: Mapping[str, BoolArray]) -> BoolArray:
    union: BoolArray = np.logical_or.reduce(list(flags.values()))
    return union
