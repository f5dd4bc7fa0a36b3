"""Texts, tables and JSON values on changes since a placement was made."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from pesto_cli.data.plan import Choice
from pesto_cli.diff import (
    Freshness,
    FreshnessCheck,
    GraphDiff,
    OtherSplit,
    PlacementComparison,
    Prediction,
)
from pesto_cli.report.scopes import counts_by_scope, scopes_of
from pesto_cli.report.sections import Section
from pesto_cli.report.splits import parts_text
from pesto_cli.report.tables import size_text
from pesto_cli.report.times import TimeScale

SentBytes = Mapping[tuple[str, str], int]

UNKNOWN = "?"
SINCE_STORED = ", compared with the prediction stored in the first one: op times have changed since"


def check_sections(check: FreshnessCheck) -> list[Section]:
    """Return sections with reasons why a placement is stale or slow, changed ops, and figures."""
    graph = check.graph
    ops = {"new": graph.new, "gone": graph.gone, "changed": graph.changed}
    remarks = [*check_reasons(check), *_kept_splits(check)]
    sections = [Section(remarks=remarks), _ops_by_scope(ops)]
    lost = {each.op: (parts_text(each.choice), str(each.why)) for each in check.lost_splits}
    sections.append(_splits_by_scope("Split ops that start whole", ("was", "because"), lost))
    if check.now is not None and check.freshness is not Freshness.FRESH:
        sections.append(_figures({"stored": check.before, "now": check.now}))
    return sections


def check_reasons(check: FreshnessCheck) -> Iterator[str]:
    """Yield the reasons why a placement is stale or slow, or one line that nothing has changed."""
    if check.graph:
        yield _graph_text(check.graph)
    if check.has_other_profile:
        yield "the profile is not the one that was solved"
    share = check.slower_by
    if share is not None and (share or check.graph or check.has_other_profile):
        accepted = "" if check.max_regression is None else f" ({check.max_regression:.1%} accepted)"
        mapped = "with the placement mapped to this graph, " if check.graph else ""
        yield f"{mapped}the step is predicted to be {slower_text(share)}{accepted}"
    if check.now is not None:
        for device, size in check.now.shortfall_bytes.items():
            yield f"{device} is {size_text(size)} short of memory"
    if not check.graph and not check.has_other_profile:
        yield "neither graph nor profile has changed" if check.now else "the graph has not changed"


def _kept_splits(check: FreshnessCheck) -> Iterator[str]:
    """Yield how many of the ops that the placement splits a warm start can split again."""
    if check.lost_splits:
        num_lost = len(check.lost_splits)
        num_kept = check.num_split - num_lost
        kept = "start" if check.has_prices else "can start"
        prices = "" if check.has_prices else ", if the profile prices their parts,"
        yield (
            f"of the {check.num_split:,} ops that the placement splits, {num_kept:,} {kept} in the "
            f"same parts in a warm start{prices} and {num_lost:,} start whole"
        )


def _graph_text(graph: GraphDiff) -> str:
    if graph.new and not graph.num_kept:
        count = f"{len(graph.new):,} ops"
        return f"the placement is of another model, or all ops were renamed: it has none of {count}"
    if graph.new or graph.gone or graph.changed:
        counts = f"{len(graph.new):,} ops new, {len(graph.gone):,} gone, {len(graph.changed):,}"
        return f"the graph has changed: {counts} changed"
    return "the graph has changed in attributes, but in no op's type or inputs"


def slower_text(share: float) -> str:
    """Return a relative change of the step time as text."""
    if not math.isfinite(share):
        return "slower"
    if abs(share) < 5e-4:
        return "as fast as before"
    return f"{abs(share):.1%} {'slower' if share > 0 else 'faster'}"


def difference_sections(difference: PlacementComparison, names: tuple[str, str]) -> list[Section]:
    """Return sections with the figures of two placements, and moved, new and reordered ops."""
    changes = difference.changes
    figures = {names[0]: difference.before, names[1]: difference.after}
    if not difference.is_as_stored:
        figures = {f"{names[0]}, stored": difference.stored, **figures}
    *old, new = figures
    figures = {name: _renamed(figures[name], changes.renamed) for name in old} | {new: figures[new]}
    split = {change.op: _split_texts(change) for change in changes.split}
    only = zip(names, (changes.only_in_first, changes.only_in_second), strict=True)
    return [
        Section(remarks=list(_difference_remarks(difference))),
        _figures(figures),
        _splits_by_scope("Split in another way", ("was", "is"), split),
        _moves(difference),
        _ops_by_scope({f"only in {name}": ops for name, ops in only}),
    ]


def _difference_remarks(difference: PlacementComparison) -> Iterator[str]:
    changes, share = difference.changes, difference.slower_by
    if changes.are_of_two_models:
        both = f"{changes.num_common:,} of {changes.num_of_smaller:,} ops are in both"
        yield f"the placements are of two models, or nearly all ops were renamed: {both}"
    if share is not None:
        since = "" if difference.is_as_stored else SINCE_STORED
        yield f"the step is {slower_text(share)}{since}"
    if changes.renamed:
        names = ", ".join(f"{old} is now {new}" for old, new in changes.renamed.items())
        yield f"devices were renamed, which does not count as a move: {names}"
    if changes.split:
        yield f"{len(changes.split):,} ops are split in only one of them, or in different ways"
    yield f"{len(changes.moved):,} of the {changes.num_common:,} ops in both have moved"
    reordered = [f"{count:,} on {name}" for name, count in changes.reordered.items() if count]
    yield f"ops that changed places in the order of their device: {', '.join(reordered) or 'none'}"


def _renamed(figures: Prediction, renamed: Mapping[str, str]) -> Prediction:
    """Return the figures of a placement with new names of devices."""
    sent = figures.sent_bytes
    return replace(
        figures,
        peak_bytes={renamed.get(name, name): size for name, size in figures.peak_bytes.items()},
        sent_bytes=None
        if sent is None
        else {
            (renamed.get(src, src), renamed.get(dst, dst)): size
            for (src, dst), size in sent.items()
        },
    )


def _figures(by_name: Mapping[str, Prediction]) -> Section:
    """Compare step time, peak memory and bytes sent; the change is from the first to the last."""
    every = list(by_name.values())
    scale = TimeScale.of(each.step_us for each in every if each.step_us is not None)
    rows = [
        _row(f"step {scale.unit}", [each.step_us for each in every], scale.text),
        *(
            _row(f"{device} peak", [each.peak_bytes.get(device) for each in every], size_text)
            for device in dict.fromkeys(device for each in every for device in each.peak_bytes)
        ),
        *_sent([each.sent_bytes for each in every]),
    ]
    return Section("Predicted", columns=["", *by_name, "change"], rows=rows)


def _sent(sent: Sequence[SentBytes | None]) -> Iterator[list[str]]:
    """Yield rows of the bytes sent: the total, and each link on which they have changed."""
    in_all = [None if links is None else sum(links.values()) for links in sent]
    yield _row("sent in total", in_all, size_text)
    for link in dict.fromkeys(link for links in sent for link in links or ()):
        by_link = [None if links is None else links.get(link, 0) for links in sent]
        if len(set(by_link)) > 1:
            yield _row(f"{' -> '.join(link)} sent", by_link, size_text)


def _row(what: str, values: Sequence[Any], text: Callable[[Any], str]) -> list[str]:
    texts = [UNKNOWN if value is None else text(value) for value in values]
    before, after = values[0], values[-1]
    if before is None or after is None:
        return [what, *texts, UNKNOWN]
    if before == after:
        return [what, *texts, "same"]
    change = f"{after / before - 1:+.1%}" if before else "new"
    return [what, *texts, "0.0%" if change in ("+0.0%", "-0.0%") else change]


def _moves(difference: PlacementComparison) -> Section:
    """Count the moved ops, and their work, by scope, old device and new device."""
    moved, work_us = difference.changes.moved, difference.work_us
    scope_of = scopes_of(move.op for move in moved)
    ways: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for move in moved:
        ways[scope_of[move.op], move.src, move.dst].append(move.op)
    ordered = sorted(ways.items(), key=lambda way: (-len(way[1]), way[0]))
    columns = ["scope", "from", "to", "ops"]
    rows = [[*way, f"{len(ops):,}"] for way, ops in ordered]
    if work_us is not None:
        columns.append("work us")
        for row, (_, ops) in zip(rows, ordered, strict=True):
            row.append(f"{sum(work_us.get(op, 0.0) for op in ops):,.1f}")
    listed = {"moved": [move.op for move in moved]}
    return Section("Moved", columns=columns, rows=rows, num_text=3, ops=listed)


def _splits_by_scope(
    title: str, columns: tuple[str, str], texts: Mapping[str, tuple[str, str]]
) -> Section:
    """Count ops by scope and by two texts on each op, which have these columns."""
    scope_of = scopes_of(texts)
    ways = Counter((scope_of[op], *of_op) for op, of_op in texts.items())
    ordered = sorted(ways.items(), key=lambda way: (-way[1], way[0]))
    rows = [[*way, f"{count:,}"] for way, count in ordered]
    listed = {title.lower(): list(texts)}
    return Section(title, columns=["scope", *columns, "ops"], rows=rows, num_text=3, ops=listed)


def _split_texts(change: OtherSplit) -> tuple[str, str]:
    """Return how an op was split, and how it is split, as short as the difference allows."""
    before, after = change.before, change.after
    texts = (parts_text(before), parts_text(after))
    if before is None or after is None or texts[0] != texts[1]:
        return texts
    if before.alternative != after.alternative:
        return f"{texts[0]} by {before.alternative}", f"{texts[1]} by {after.alternative}"
    return f"{texts[0]} of {_sizes(before)}", f"{texts[1]} of {_sizes(after)}"


def _sizes(choice: Choice) -> str:
    return ", ".join(map(str, choice.sizes))


def _ops_by_scope(ops: Mapping[str, Sequence[str]]) -> Section:
    some = {what: names for what, names in ops.items() if names}
    rows = [[scope, *map(str, counts)] for scope, counts in counts_by_scope(some)]
    return Section("Ops", columns=["scope", *some], rows=rows, ops=some)


def check_json(check: FreshnessCheck) -> dict[str, Any]:
    """Return a check as a JSON value, with the names of all ops."""
    graph = check.graph
    return {
        "status": str(check.freshness),
        "graph": {
            "changed": bool(graph),
            "new": list(graph.new),
            "gone": list(graph.gone),
            "changed_ops": list(graph.changed),
        },
        "split": {
            "num_ops": check.num_split,
            "lost": [each.op for each in check.lost_splits],
            "why_lost": {each.op: str(each.why) for each in check.lost_splits},
        },
        "profile_changed": check.has_other_profile,
        "slower_by": _finite(check.slower_by),
        "max_regression": check.max_regression,
        "promised": _prediction_json(check.before),
        "now": None if check.now is None else _prediction_json(check.now),
    }


def difference_json(difference: PlacementComparison) -> dict[str, Any]:
    """Return the differences of two placements as a JSON value, with the names of all ops."""
    changes, work_us = difference.changes, difference.work_us
    return {
        "renamed_devices": dict(changes.renamed),
        "num_common": changes.num_common,
        "moved": [
            asdict(move) | ({} if work_us is None else {"work_us": work_us.get(move.op)})
            for move in changes.moved
        ],
        "only_in_first": list(changes.only_in_first),
        "only_in_second": list(changes.only_in_second),
        "reordered": dict(changes.reordered),
        "split": list(map(asdict, changes.split)),
        "slower_by": _finite(difference.slower_by),
        "promised": _prediction_json(difference.stored),
        "before": _prediction_json(difference.before),
        "after": _prediction_json(difference.after),
    }


def _prediction_json(figures: Prediction) -> dict[str, Any]:
    sent = figures.sent_bytes
    return {
        "step_us": figures.step_us,
        "peak_bytes": dict(figures.peak_bytes),
        "shortfall_bytes": dict(figures.shortfall_bytes),
        "sent_bytes": None
        if sent is None
        else [{"src": src, "dst": dst, "bytes": size} for (src, dst), size in sent.items()],
    }


def _finite(share: float | None) -> float | None:
    return None if share is None or not math.isfinite(share) else share
