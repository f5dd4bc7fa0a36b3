"""The file format of fitted communication models."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Literal

from pydantic import ConfigDict

from pesto_cli.data.machine import CommModel, Link, Machine
from pesto_cli.errors import BadInputError
from pesto_cli.files.machine import Finite, NonNegative
from pesto_cli.files.reading import read_bytes
from pesto_cli.files.storage import Schema, parse_json, write_json

# (kind of the source, kind of the destination, channel or ""); see `link_kinds`.
LinkKind = tuple[str, str, str]


class CommSchema(Schema):
    """Fitted communication models of links between device kinds."""

    model_config = ConfigDict(title="pesto-comm")

    format: Literal["pesto-comm"]
    version: Literal[1]
    links: list["_CommLinkSchema"]


class _CommLinkSchema(Schema):
    src_kind: str
    dst_kind: str
    latency_us: NonNegative
    us_per_byte: NonNegative
    min_us: NonNegative = 0.0
    sender_us: NonNegative = 0.0
    sender_us_per_byte: NonNegative = 0.0
    receiver_us: NonNegative = 0.0
    receiver_us_per_byte: NonNegative = 0.0
    wait_us: NonNegative = 0.0
    channel: str = ""
    r_squared: Finite | None = None
    num_samples: int | None = None
    signal_us: NonNegative | None = None
    two_at_once: NonNegative | None = None
    both_ways: NonNegative | None = None


@dataclass(frozen=True)
class CommFit:
    """A communication model fitted for one kind of link, and other measurements of that kind.

    src_kind, dst_kind: device kinds of the endpoints.
    channel: the link's channel if it is part of the link kind (see `link_kinds`), else "".
    r_squared: share of the variance that the fitted line explains. num_samples: transfers timed.
    signal_us: delay of a control edge.
    two_at_once: time of two simultaneous transfers on one link, as a multiple of one transfer; the
        model assumes 2.
    both_ways: the same multiple for one transfer in each direction; the model assumes 1, or 2 if
        both directions share a channel.
    """

    src_kind: str
    dst_kind: str
    comm: CommModel
    r_squared: float | None = None
    num_samples: int | None = None
    channel: str = ""
    signal_us: float | None = None
    two_at_once: float | None = None
    both_ways: float | None = None

    @property
    def link_kind(self) -> "LinkKind":
        """The kind of link for which the model was fitted."""
        return self.src_kind, self.dst_kind, self.channel

    @property
    def has_overhead(self) -> bool:
        """Whether a transfer delays the op that runs on its sender or receiver."""
        comm = self.comm
        fixed_us = comm.sender_us + comm.receiver_us
        return fixed_us + comm.sender_us_per_byte + comm.receiver_us_per_byte > 0

    @property
    def directions_share_channel(self) -> bool:
        """Whether `both_ways` is closer to 2 (one shared channel) than to 1."""
        return self.both_ways is not None and self.both_ways >= (1 + 2) / 2


def read_comm(path: Path | str) -> list[CommFit]:
    """Read the fits that `write_comm` wrote."""
    parsed = parse_json(
        path, read_bytes(path), "pesto-comm", "communication fit (pesto comm)", CommSchema
    )
    return [
        CommFit(
            link.src_kind,
            link.dst_kind,
            CommModel(**{each.name: getattr(link, each.name) for each in fields(CommModel)}),
            link.r_squared,
            link.num_samples,
            link.channel,
            link.signal_us,
            link.two_at_once,
            link.both_ways,
        )
        for link in parsed.links
    ]


def write_comm(path: Path | str, fits: list[CommFit]) -> None:
    """Write fits, one for each kind of link."""
    links = [
        {
            "src_kind": fit.src_kind,
            "dst_kind": fit.dst_kind,
            **asdict(fit.comm),
            "channel": fit.channel,
            "r_squared": fit.r_squared,
            "num_samples": fit.num_samples,
            "signal_us": fit.signal_us,
            "two_at_once": fit.two_at_once,
            "both_ways": fit.both_ways,
        }
        for fit in fits
    ]
    write_json(path, {"format": "pesto-comm", "version": 1, "links": links})


def link_kinds(machine: Machine) -> list[LinkKind]:
    """Return the kind of every link; one link of each kind is timed, and all share its model.

    The channel is part of the kind if several pairs of devices share it, such as a network card. If
    such a channel leads to several others, as with three hosts, the channel back is part too.
    """
    kind = {device.name: device.kind for device in machine.devices}
    back = {(link.dst, link.src): link.channel for link in machine.links}
    pairs, backs = defaultdict(set), defaultdict(set)
    for link in machine.links:
        pairs[link.channel].add(frozenset((link.src, link.dst)))
        backs[link.channel].add(back[link.src, link.dst])

    def shared(link: Link) -> str:
        if len(pairs[link.channel]) < 2:
            return ""
        names = [link.channel]
        if len(backs[link.channel]) > 1:
            names.append(back[link.src, link.dst])
        return ", ".join(names)

    return [(kind[link.src], kind[link.dst], shared(link)) for link in machine.links]


def with_comm(machine: Machine, fits: list[CommFit]) -> Machine:
    """Return the machine with the fitted model on every link of a fitted kind.

    Two opposite links share a channel if transfers in both directions were measured to wait for
    each other; otherwise each has its own. `signal_us` is the mean over the fits of the links.

    Raises:
        BadInputError: no link of the machine has a fitted kind.
    """
    by_kind = {fit.link_kind: fit for fit in fits}
    kinds = link_kinds(machine)
    found = [
        by_kind.get(kind) or by_kind.get((*kind[:2], link.channel)) or by_kind.get((*kind[:2], ""))
        for link, kind in zip(machine.links, kinds, strict=True)
    ]
    if not any(found):
        raise BadInputError(
            f"the communication fit has links {_names(by_kind)}, the machine has links "
            f"{_names(kinds)}; at least one common kind of link was expected: fit transfers "
            "between the machine's device kinds."
        )
    links = tuple(
        link
        if fit is None
        else replace(link, comm=fit.comm, channel=link.channel if kind[2] else _channel(link, fit))
        for link, kind, fit in zip(machine.links, kinds, found, strict=True)
    )
    signals = [fit.signal_us for fit in found if fit is not None and fit.signal_us is not None]
    signal_us = fmean(signals) if signals else machine.signal_us
    return replace(machine, links=links, signal_us=signal_us)


def _channel(link: Link, fit: CommFit) -> str:
    """Return the channel of a link that shares it with no link but the opposite one; else ""."""
    if fit.both_ways is None:
        return link.channel
    return " and ".join(sorted((link.src, link.dst))) if fit.directions_share_channel else ""


def _names(kinds: Iterable[LinkKind]) -> str:
    return ", ".join(sorted({f"{src} -> {dst} {channel}".strip() for src, dst, channel in kinds}))
