"""Fitted communication models."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from pesto_cli.errors import BadInputError
from pesto_cli.files.machine import NonNegative
from pesto_cli.files.storage import Schema, parse_json, read_bytes, write_json
from pesto_cli.machine import CommModel, Machine


class _CommSchema(Schema):
    format: Literal["pesto-comm"]
    version: Literal[1]
    links: list["_CommLinkSchema"]


class _CommLinkSchema(Schema):
    src_kind: str
    dst_kind: str
    latency_us: NonNegative
    us_per_byte: NonNegative
    min_us: NonNegative = 0.0
    r_squared: float | None = None
    num_samples: int | None = None


@dataclass(frozen=True)
class CommFit:
    """A communication model fitted for one kind of link.

    r_squared: share of the variance that the line explains. num_samples: transfers timed.
    """

    src_kind: str
    dst_kind: str
    comm: CommModel
    r_squared: float | None = None
    num_samples: int | None = None


def read_comm(path: Path | str) -> list[CommFit]:
    """Fits written by `write_comm`."""
    parsed = parse_json(
        path, read_bytes(path), "pesto-comm", "communication fit (pesto comm)", _CommSchema
    )
    return [
        CommFit(
            link.src_kind,
            link.dst_kind,
            CommModel(link.latency_us, link.us_per_byte, link.min_us),
            link.r_squared,
            link.num_samples,
        )
        for link in parsed.links
    ]


def write_comm(path: Path | str, fits: list[CommFit]) -> None:
    """Write fits, one a kind of link."""
    links = [
        {
            "src_kind": fit.src_kind,
            "dst_kind": fit.dst_kind,
            **asdict(fit.comm),
            "r_squared": fit.r_squared,
            "num_samples": fit.num_samples,
        }
        for fit in fits
    ]
    write_json(path, {"format": "pesto-comm", "version": 1, "links": links})


def with_comm(machine: Machine, fits: list[CommFit]) -> Machine:
    """The machine with the fitted models on every link of a fitted kind.

    Raises:
        BadInputError: no link of the machine is of any fitted kind.
    """
    by_kind = {(fit.src_kind, fit.dst_kind): fit.comm for fit in fits}
    kind = {device.name: device.kind for device in machine.devices}
    pairs = [(kind[link.src], kind[link.dst]) for link in machine.links]
    if not set(pairs) & set(by_kind):
        raise BadInputError(
            f"the communication fit has links {sorted(by_kind)}, the machine {sorted(set(pairs))}; "
            "at least one kind in common was expected: fit transfers between the machine's kinds."
        )
    links = tuple(
        replace(link, comm=by_kind.get(pair, link.comm))
        for link, pair in zip(machine.links, pairs, strict=True)
    )
    return replace(machine, links=links)
