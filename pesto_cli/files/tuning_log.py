"""The file format of tuning logs: a profile, plans of its graph, and their measured steps.

A log contains the profile as it was before any correction. Corrected costs follow from it and from
the measurements, so they are not stored.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field

from pesto_cli.data.graph import FloatArray
from pesto_cli.data.steps import StepTimes
from pesto_cli.errors import BadInputError, about
from pesto_cli.files.placement import (
    PlacementFile,
    placement_json,
    placement_of,
)
from pesto_cli.files.placement_schema import PlacementSchema
from pesto_cli.files.profile import Profile, profile_json, profile_of
from pesto_cli.files.profile_schema import ProfileSchema
from pesto_cli.files.reading import read_bytes
from pesto_cli.files.storage import Extensible, parse_json, write_json

_Us = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_OpUs = Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
_Count = Annotated[int, Field(ge=1, lt=2**31)]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A plan that may be run.

    name: unique in a log. made_by: the form of plan that was searched for.
    is_simple: whether it is one of the plans that people make without a search.
    """

    name: str
    made_by: str
    is_simple: bool
    placement: PlacementFile


@dataclass(frozen=True, eq=False)
class Measurement:
    """Measured steps of a candidate in one round.

    candidate: its name. predicted_us: the prediction for its step before the round.
    us: `[num_turns, num_in_a_row]`, times of untraced steps.
    op_us: `[num_ops]`, time of each placed op, a median over the traced steps; NaN if it did not
        run. num_traced: number of these steps.
    """

    candidate: str
    predicted_us: float
    us: FloatArray
    op_us: FloatArray
    num_traced: int = 1

    @cached_property
    def times(self) -> StepTimes:
        """The times of the untraced steps."""
        return StepTimes(self.us, (), {})

    @property
    def error(self) -> float:
        """The error of the prediction as a share of the measured time, above 0 if too long."""
        return self.predicted_us / self.times.median_us - 1


@dataclass(frozen=True, eq=False)
class TuningRound:
    """Candidates that ran by turns. is_final: whether their steps decide on the answer."""

    measured: tuple[Measurement, ...]
    is_final: bool = False

    def of(self, candidate: str) -> Measurement | None:
        """Return the measurement of a candidate, or None."""
        return next((each for each in self.measured if each.candidate == candidate), None)


@dataclass(frozen=True, eq=False)
class TuningLog:
    """All that a tuning knows.

    profile: the profile before its costs were corrected, with the user's constraints. A file does
        not have these: they are added again when a tuning continues.
    """

    profile: Profile
    candidates: tuple[Candidate, ...] = ()
    rounds: tuple[TuningRound, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def candidate_of(self) -> Mapping[str, Candidate]:
        """Name -> candidate."""
        return {each.name: each for each in self.candidates}

    @property
    def settings(self) -> Mapping[str, Any]:
        """The options that change the problem, such as constraints; all candidates obey them."""
        found: Mapping[str, Any] = self.provenance.get("settings", {})
        return found

    @property
    def search_rounds(self) -> tuple[TuningRound, ...]:
        """The rounds that are not final."""
        return tuple(each for each in self.rounds if not each.is_final)

    @property
    def measurements(self) -> Iterator[tuple[PlacementFile, Measurement]]:
        """Yield each measurement with the placement that ran."""
        for each in self.rounds:
            for measured in each.measured:
                yield self.candidate_of[measured.candidate].placement, measured


class _CandidateSchema(Extensible):
    name: str
    made_by: str
    is_simple: bool
    placement: PlacementSchema


class _MeasurementSchema(Extensible):
    candidate: str
    """Name of a candidate."""
    predicted_us: _Us
    """The prediction for the step before the round."""
    steps_us: list[Annotated[list[_Us], Field(min_length=1)]] = Field(min_length=1)
    """Times of untraced steps, one list for each turn."""
    op_us: list[_OpUs]
    """Time of each placed op in traced steps, in the order of the placement; null if it did not
    run."""
    num_traced: _Count = 1
    """Number of traced steps."""


class _RoundSchema(Extensible):
    measured: list[_MeasurementSchema] = Field(min_length=1)
    is_final: bool = False


class TuningLogSchema(Extensible):
    """Plans of one graph on one machine, and their measured steps."""

    model_config = ConfigDict(title="pesto-tuning")

    format: Literal["pesto-tuning"]
    version: Literal[1]
    provenance: dict[str, Any] = {}
    """For the record: versions and settings."""
    profile: ProfileSchema
    """The profile before its costs were corrected."""
    candidates: list[_CandidateSchema] = []
    rounds: list[_RoundSchema] = []


def read_tuning_log(path: Path | str) -> TuningLog:
    """Read a tuning log.

    Raises:
        BadInputError: the file is missing or damaged, or its parts do not match each other.
        InfeasibleError: an op or colocation group of its profile has no device.
    """
    what = "tuning log (pesto tune GRAPH --log LOG)"
    parsed = parse_json(path, read_bytes(path), "pesto-tuning", what, TuningLogSchema)
    candidates = tuple(
        Candidate(each.name, each.made_by, each.is_simple, placement_of(each.placement, path))
        for each in parsed.candidates
    )
    names = [each.name for each in candidates]
    if twice := [name for name in names if names.count(name) > 1]:
        raise BadInputError(
            f"{path}: two candidates are named {twice[0]!r}; unique names were expected: remove "
            "the file to begin again."
        )
    num_ops = {each.name: len(each.placement.names) for each in candidates}
    rounds = tuple(
        TuningRound(tuple(_measurement(path, row, num_ops) for row in each.measured), each.is_final)
        for each in parsed.rounds
    )
    for round_ in rounds:
        if len({each.us.shape for each in round_.measured}) > 1:
            raise BadInputError(
                f"{path}: the candidates of a round have different numbers of steps; equal numbers "
                "were expected, as they run by turns: remove the file to begin again."
            )
    if not isinstance(parsed.provenance.get("settings", {}), dict):
        raise BadInputError(
            f"{path}: its settings are {parsed.provenance['settings']!r}; a table was expected: "
            "remove the file to begin again."
        )
    profile = profile_of(parsed.profile, path)
    for each in candidates:
        with about(f"{path}: candidate {each.name!r}"):
            each.placement.check_graph_ops(profile.problem.graph.names)
    return TuningLog(profile, candidates, rounds, parsed.provenance)


def _measurement(
    path: Path | str, row: _MeasurementSchema, num_ops: Mapping[str, int]
) -> Measurement:
    if row.candidate not in num_ops:
        raise BadInputError(
            f"{path}: a round has candidate {row.candidate!r}; one of "
            f"{', '.join(num_ops) or 'no candidates'} was expected: remove the file to begin again."
        )
    if len(row.op_us) != num_ops[row.candidate] or len(set(map(len, row.steps_us))) > 1:
        raise BadInputError(
            f"{path}: the columns of {row.candidate!r} have {len(row.op_us)} op times and turns of "
            f"{', '.join(map(str, map(len, row.steps_us)))} steps; {num_ops[row.candidate]} op "
            "times and equal turns were expected: remove the file to begin again."
        )
    op_us = np.array([math.nan if us is None else us for us in row.op_us])
    return Measurement(
        row.candidate, row.predicted_us, np.array(row.steps_us), op_us, row.num_traced
    )


def write_tuning_log(path: Path | str, log: TuningLog) -> None:
    """Write a tuning log; it is compressed if the path ends in `.gz`."""
    value = {
        "format": "pesto-tuning",
        "version": 1,
        "provenance": dict(log.provenance),
        "profile": profile_json(log.profile),
        "candidates": [
            {
                "name": each.name,
                "made_by": each.made_by,
                "is_simple": each.is_simple,
                "placement": placement_json(each.placement),
            }
            for each in log.candidates
        ],
        "rounds": [
            {"is_final": each.is_final, "measured": list(map(_measurement_json, each.measured))}
            for each in log.rounds
        ],
    }
    write_json(path, value)


def _measurement_json(measured: Measurement) -> dict[str, Any]:
    return {
        "candidate": measured.candidate,
        "predicted_us": measured.predicted_us,
        "steps_us": measured.us.tolist(),
        "op_us": [None if math.isnan(us) else us for us in measured.op_us.tolist()],
        "num_traced": measured.num_traced,
    }
