"""Validation of the API's arguments: a value of a wrong type is refused, with the remedy."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from numbers import Integral
from pathlib import Path
from reprlib import repr as short_repr
from types import UnionType
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, get_args, get_origin
from typing import runtime_checkable as at_run_time

from pesto_cli.coarsen import Round
from pesto_cli.data.constraints import Constraints, SplitRule
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.limits import Limits
from pesto_cli.data.machine import Machine
from pesto_cli.data.plan import Plan
from pesto_cli.data.result import Result
from pesto_cli.data.schedule import Schedule
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.learned.weights import Trained
from pesto_cli.strategies import Context

P = ParamSpec("P")
T = TypeVar("T")


@at_run_time
class MetaGraph(Protocol):
    """Any object with the attribute by which a MetaGraphDef is recognised."""

    graph_def: Any


class Kind(NamedTuple):
    """A type of argument. words: its name in messages. remedy: how to get a value of this type."""

    words: str
    remedy: str = ""


# Arguments with annotations of other types are not checked.
KINDS: Mapping[Any, Kind] = {
    Profile: Kind("a profile", "load(path) reads one, profile(graph, machine) makes one"),
    PlacementFile: Kind("a placement", "placement(profile, result) makes one, load(path) reads it"),
    Result: Kind("a result", "solve(profile) gives one"),
    Schedule: Kind("a schedule", "solve(profile).schedule is one"),
    MetaGraph: Kind("a MetaGraphDef", "load(path) reads one, export(model) makes one"),
    OpGraph: Kind("an op graph", "profile.problem.graph is one"),
    Machine: Kind("a machine", "load(name) gives one"),
    Constraints: Kind("constraints", "load(path) reads them"),
    Plan: Kind("a plan", "plan(placement) gives one, split(profile, SplitRule(...)) makes one"),
    SplitRule: Kind("a rule", 'such as SplitRule("layer_1/*", by="columns", parts=2)'),
    Context: Kind("a context", "Context(limits=Limits(time_limit_s=...)) makes one"),
    Limits: Kind("limits", "Limits(time_limit_s=..., seed=...) makes them"),
    Trained: Kind("a trained policy", "train(policy, profiles) gives one, load(path) reads one"),
    Round: Kind("a round", "coarsen(profile, on_round=rounds.append) collects them"),
    Mapping: Kind("a mapping from names", "such as {'mine': placement}"),
    Iterable: Kind("a list", "such as ['single', 'pesto']"),
    Sequence: Kind("a list", "such as [2, 4, 8]"),
    Path: Kind("a path"),
    Integral: Kind("a whole number"),
    str: Kind("a string"),
}


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that checks its arguments before it runs.

    Raises:
        BadInputError: an argument is not of the type of its annotation.
        TypeError: an argument is missing or unknown; the message lists the known ones.
    """
    signature = inspect.signature(function)
    positional = [
        each.name
        for each in signature.parameters.values()
        if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    call = f"{function.__name__}({', '.join(positional)})"

    @wraps(function)
    def checking(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            known = ", ".join(signature.parameters)
            raise TypeError(f"{function.__name__}() {error}; it takes {known}.") from None
        for name, value in arguments.items():
            parameter = signature.parameters[name]
            is_several = parameter.kind is inspect.Parameter.VAR_POSITIONAL
            for each in value if is_several else [value]:
                expect(f"{call}: {name}", each, parameter.annotation)
        return function(*args, **kwargs)

    return checking


def expect(what: str, value: object, annotation: Any) -> None:
    """Refuse a value that has none of the types of an annotation.

    A value passes if the annotation has a type that is not in `KINDS`. A string does not count as a
    list, although it is an iterable in Python.

    Raises:
        BadInputError: what was found, what was expected, and how to get a value of this type.
    """
    options = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    types = [Integral if option is int else get_origin(option) or option for option in options]
    kinds = [KINDS[each] for each in types if each in KINDS]
    if len(kinds) + (type(None) in types) < len(types):
        return
    is_split = isinstance(value, str) and str not in types and {Iterable, Sequence} & {*types}
    if isinstance(value, tuple(types)) and not is_split:
        return
    expected = " or ".join(kind.words for kind in kinds)
    remedy = f": {kinds[0].remedy}" if kinds[0].remedy else ""
    raise BadInputError(f"{what} is {_found(value)}; {expected} was expected{remedy}.")


def _found(value: object) -> str:
    if value is None or isinstance(value, str | int | float | list | tuple | dict):
        return short_repr(value)
    return KINDS[type(value)].words if type(value) in KINDS else f"a {type(value).__name__}"
