"""The verbs of the command line as functions: `from pesto_cli import api as pesto`.

    graph = pesto.export("zoo:RNNLM-2-2048")
    profile = pesto.profile(graph, "v100x2-nvlink")
    result = pesto.solve(profile, time_limit_s=60)
    placed = pesto.apply(graph, pesto.placement(profile, result))

`load` reads any file of pesto's and any graph of TensorFlow's, `save` writes what others return.
Where IPython runs, values show themselves as tables.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pesto_cli.apply import apply
from pesto_cli.bounds import critical_path_us, lower_bound_us
from pesto_cli.causes import Causes, critical_chain
from pesto_cli.changes import (
    CarriedOver,
    Check,
    Difference,
    Prediction,
    graph_changes,
    placement_changes,
    predicted,
    promised,
)
from pesto_cli.cluster import Cluster, connected, is_live
from pesto_cli.coarsen import Considered, Round
from pesto_cli.coarsen import coarsen as coarsen_problem
from pesto_cli.coarsen import considered as considered_pairs
from pesto_cli.coarsen.rounds import OnRound, unheard
from pesto_cli.constraints import Constraints
from pesto_cli.errors import BadInputError, InfeasibleError, NoSolutionError
from pesto_cli.files import (
    PlacementFile,
    Profile,
    atomic_write,
    placement,
    read_bytes,
    read_comm,
    read_constraints,
    read_machine,
    read_placement,
    read_profile,
    write_comm,
    write_placement,
    write_profile,
)
from pesto_cli.files.storage import read_toml
from pesto_cli.graph import FloatArray, OpGraph
from pesto_cli.graph_networkx import problem_from_networkx
from pesto_cli.graph_networkx import to_networkx as graph_to_networkx
from pesto_cli.graphdef.containers import read_meta_graph, write_meta_graph
from pesto_cli.graphdef.event_files.events import event_files
from pesto_cli.graphdef.export import export
from pesto_cli.graphdef.programs.capture import capture
from pesto_cli.graphdef.read import read_step
from pesto_cli.limits import Limits
from pesto_cli.machine import PRESETS, Machine
from pesto_cli.memory import held_over_time, unavoidable_shortfall
from pesto_cli.problem import Problem
from pesto_cli.profile import profile as profile_graph
from pesto_cli.profile.source import Live
from pesto_cli.report.charts import write_chart
from pesto_cli.report.memory import memory_text
from pesto_cli.report.notebook import register
from pesto_cli.report.page.page import report_page
from pesto_cli.report.page.shown import Coarse, Shown
from pesto_cli.report.pictures.layers import layers_chart
from pesto_cli.report.pictures.memory import memory_chart
from pesto_cli.report.pictures.merges import merges_chart
from pesto_cli.report.pictures.timeline import timeline_chart
from pesto_cli.report.tables import shortfall_text
from pesto_cli.report.why.brief import BriefFacts, brief_facts
from pesto_cli.report.why.chain import StepFacts, step_facts
from pesto_cli.report.why.matching import matching_ops
from pesto_cli.report.why.op import OpFacts, op_facts
from pesto_cli.result import Comparison, Result, SolveStatus
from pesto_cli.runtime.comparison import RealRun, compared
from pesto_cli.runtime.interleaved import Turns
from pesto_cli.schedule import Schedule, violations
from pesto_cli.simulate import Simulator, replay
from pesto_cli.strategies import STRATEGIES, Search, order
from pesto_cli.strategies.carried_over import carried_over, start_from
from pesto_cli.strategies.moved import moved
from pesto_cli.strategies.run import judged, run
from pesto_cli.strategies.search import Answer
from pesto_cli.strategies.warm_up import warm_up

__all__ = [
    "STRATEGIES",
    "Limits",
    "Search",
    "apply",
    "capture",
    "check_same_machine",
    "coarsen",
    "compare",
    "connected",
    "considered",
    "constrain",
    "critical_path_us",
    "diff",
    "explain",
    "explain_briefly",
    "explain_step",
    "export",
    "from_networkx",
    "is_live",
    "layers",
    "load",
    "lower_bound_us",
    "memory",
    "merges",
    "placement",
    "predicted_us",
    "profile",
    "profile_by_run",
    "random_orders_us",
    "read_comm",
    "read_constraints",
    "read_graph",
    "read_machine",
    "read_meta_graph",
    "read_placement",
    "read_profile",
    "report",
    "run_steps",
    "save",
    "simulate",
    "solve",
    "timeline",
    "to_networkx",
    "violations",
    "warm_up",
    "write_comm",
    "write_meta_graph",
    "write_placement",
    "write_profile",
]

# What a report compares placements with, and the size of the coarse graph that it draws.
REPORT_BASELINES = ("single", "expert")
REPORT_NODES = 120


_READERS = {
    "pesto-profile": read_profile,
    "pesto-placement": read_placement,
    "pesto-comm": read_comm,
}


def load(name: Path | str) -> Any:
    """Read what a path or a machine's name stands for; what a file holds says what it is.

    Returns:
        A `Profile`, `PlacementFile` or list of `CommFit`, a `Machine` or `Constraints` (TOML), or a
        MetaGraphDef (`.meta`, `.pb`, `.pbtxt`, a SavedModel).

    Raises:
        BadInputError: nothing is there, or it is damaged or none of these.

    Example:
        >>> profile = load("examples/rnnlm.profile.json.gz")
    """
    path = Path(name)
    if str(name) in PRESETS or path.suffix == ".toml":
        is_machine = str(name) in PRESETS or "devices" in read_toml(path)
        return read_machine(str(name)) if is_machine else read_constraints(path)
    if not path.exists():
        raise BadInputError(
            f"{name} is neither a file nor a machine; the path of a profile, placement, graph, "
            f"machine or constraints, or one of {', '.join(PRESETS)}, was expected."
        )
    if path.is_file() and (data := read_bytes(path)).startswith(b"{"):
        return _READERS.get(_format(data), read_profile)(path)
    return read_meta_graph(path)


def _format(data: bytes) -> str:
    """What a JSON file says that it is; empty if it says nothing, or is damaged."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    return str(value.get("format"))


def save(path: Path | str, value: Any) -> None:
    """Write a profile, placement, communication fit, graph, chart or page.

    Raises:
        BadInputError: it is none of these, or the path is no place for it.
        EnvironmentFailedError: the file system refused.

    Example:
        >>> save("rnnlm.placement.json", placement(profile, solve(profile)))
    """
    if isinstance(value, Profile):
        write_profile(path, value)
    elif isinstance(value, PlacementFile):
        write_placement(path, value)
    elif isinstance(value, list):
        write_comm(path, value)
    elif isinstance(value, str):
        atomic_write(path, value.encode())
    elif hasattr(value, "graph_def"):
        write_meta_graph(path, value)
    elif hasattr(value, "to_dict"):
        write_chart(Path(path), value)
    else:
        raise BadInputError(
            f"{path}: a {type(value).__name__} has no file format; a profile, placement, "
            "communication fit, graph, chart or page was expected. A result is saved as "
            "placement(profile, result)."
        )


def profile(meta: Any, machine: Machine | str = "v100x2-nvlink", **options: Any) -> Profile:
    """Give every op of a graph its time on every kind of device.

    Args:
        meta: a MetaGraphDef, as of `export` and `load`.
        machine: or the name of one: a preset, or a TOML file.
        options: as of `pesto_cli.profile.profile`: `source`, `cpu_offload`, `comm`, `what`.

    Raises:
        BadInputError: graph, machine or costs do not fit each other.
        InfeasibleError: an op or colocation group has no device.

    Example:
        >>> profile(export("zoo:RNNLM-tiny"), "v100x2-pcie")
    """
    known = read_machine(machine) if isinstance(machine, str) else machine
    return profile_graph(meta, known, **options)


def read_graph(source: str) -> Any:
    """A MetaGraphDef as a file has it, or from whatever else `export` takes."""
    is_graph = Path(source).is_file() and not event_files(Path(source))
    return read_meta_graph(source) if is_graph else export(source)


def constrain(profile: Profile, constraints: Constraints) -> Profile:
    """Apply the user's constraints; every verb after this one respects them."""
    return replace(profile, problem=constraints.apply(profile.problem))


def coarsen(
    profile: Profile,
    num_nodes: int = 200,
    *,
    merging: str = "parallel",
    on_round: OnRound = unheard,
) -> Profile:
    """Coarsen to a profile whose ops are nodes, with the names of their members.

    Args:
        profile: is left as it is.
        num_nodes: how many nodes are wanted; more are left where no two can be merged.
        merging: "parallel" keeps the critical path, "plain" is the paper's.
        on_round: told of every batch of merges, see `considered`.

    Raises:
        BadInputError: num_nodes is below 1, or the merging is unknown.

    Example:
        >>> rounds = []
        >>> coarse = coarsen(profile, 200, on_round=rounds.append)
    """
    coarsening = coarsen_problem(profile.problem, num_nodes, merging=merging, on_round=on_round)
    names = profile.problem.graph.names
    members = [
        [names[op] for op in coarsening.members[node].tolist()]
        for node in range(coarsening.num_nodes)
    ]
    provenance = {**profile.provenance, "coarsened_from": profile.file_hash}
    return Profile(coarsening.problem, provenance, members)


def considered(profile: Profile, round_: Round) -> list[Considered]:
    """Every pair of nodes that a round of `coarsen` looked at, why it could merge, and if it did.

    Example:
        >>> Counter(pair.verdict for pair in considered(profile, rounds[0]))
    """
    return considered_pairs(profile.problem, round_)


def solve(
    profile: Profile, strategy: str = "pesto", search: Search | None = None, **limits: Any
) -> Result:
    """Find a schedule that fits into memory.

    Args:
        profile: what is to be placed.
        strategy: a name in `STRATEGIES`.
        search: how to search.
        limits: in place of the search's: `time_limit_s`, `seed`, `workers`, `deterministic`.

    Returns:
        makespan and lower bound in us, and the schedule: device, rank, start and end of every op,
        `[num_ops]`.

    Raises:
        BadInputError: no such strategy.
        InfeasibleError: none exists, or the strategy's only one does not fit.
        NoSolutionError: the search ended before it found one, and none of either is proved.

    Example:
        >>> solve(profile, time_limit_s=10, workers=4).makespan_us
    """
    problem = profile.problem
    result = run(problem, strategy, _limited(search or Search(), limits))
    if result.status is not SolveStatus.OUT_OF_MEMORY:
        return result
    reason = unavoidable_shortfall(problem)
    kind = NoSolutionError if reason is None and strategy == "pesto" else InfeasibleError
    error = kind(
        f"no placement that {strategy} found in {result.runtime_s:.1f} s fits into memory: "
        f"{shortfall_text(problem, result)} ({reason or 'more time may find one that fits'}); "
        "reduce the batch size, use devices with more memory, or relax the headroom."
    )
    error.add_note(memory_text(result.memory_peaks))
    raise error


def _limited(search: Search, limits: Mapping[str, Any]) -> Search:
    return replace(search, limits=replace(search.limits, **limits))


def compare(
    profile: Profile,
    strategies: Sequence[str] = tuple(STRATEGIES),
    search: Search | None = None,
    **limits: Any,
) -> Comparison:
    """Every strategy's result on the same problem, also what exceeds the memory.

    Args and errors as of `solve`, a search each.

    Example:
        >>> compare(profile, ["single", "expert", "pesto"], time_limit_s=10)
    """
    search = _limited(search or Search(), limits)
    results = tuple(run(profile.problem, name, search) for name in strategies)
    return Comparison(profile.problem, results)


def simulate(profile: Profile, placed: PlacementFile) -> Result:
    """Replay a placement: every device strictly in rank order.

    Raises:
        BadInputError: it is of other ops or devices.

    Example:
        >>> simulate(profile, load("rnnlm.placement.json")).makespan_us
    """
    began = time.perf_counter()
    answer = Answer(replay(profile.problem, placed.match(profile.problem)))
    name = placed.provenance.get("strategy", "placement")
    runtime_s = time.perf_counter() - began
    return judged(profile.problem, name, answer, runtime_s)


def explain(profile: Profile, placed: PlacementFile, op: str) -> OpFacts:
    """Why an op runs where and when it does, and what the step would take if it ran elsewhere.

    Raises:
        BadInputError: the profile has no op of this name.
    """
    problem, found = profile.problem, _causes(profile, placed)
    if op not in problem.graph.index_of:
        names = matching_ops(problem.graph, op)
        raise BadInputError(f"{len(names)} ops fit {op!r}, such as {names[0]!r}; name one of them.")
    index, simulator = problem.graph.index_of[op], Simulator(problem)
    elsewhere = {
        device: moved(simulator, found.schedule, index, device)
        for device in np.flatnonzero(problem.allowed[index]).tolist()
    }
    return op_facts(found, critical_chain(problem, found.schedule), index, elsewhere)


def explain_briefly(
    profile: Profile, placed: PlacementFile, ops: Sequence[str]
) -> list[BriefFacts]:
    """When some ops run and what each waited for, by start."""
    return brief_facts(_causes(profile, placed), ops)


def explain_step(profile: Profile, placed: PlacementFile) -> StepFacts:
    """What the makespan of a placement is made of: its critical chain, and sums over it."""
    found = _causes(profile, placed)
    return step_facts(found, critical_chain(profile.problem, found.schedule))


def _causes(profile: Profile, placed: PlacementFile) -> Causes:
    """The schedule of a placement, to be asked why."""
    return Causes(profile.problem, replay(profile.problem, placed.match(profile.problem)))


def carry_over(profile: Profile, placed: PlacementFile) -> CarriedOver:
    """What is left of a placement on a graph that has changed, to start a search from.

    Example:
        >>> carried = carry_over(profile, old)
        >>> too = not carried.is_whole
        >>> search = Search(warm_start=carried.placement, cheap_starts_too=too)

    Raises:
        BadInputError: nothing is.
    """
    carried = start_from(placed, Simulator(profile.problem))
    if not carried.num_by_name:
        devices = [device.name for device in profile.problem.machine.devices]
        raise BadInputError(
            "the placement is of another model or machine: none of its "
            f"{len(placed.names)} ops, such as {next(iter(placed.names), '')!r} on one of "
            f"{', '.join(placed.devices)}, can be put there among the {profile.problem.num_ops} "
            f"ops and on {', '.join(devices)} of the profile; give one of an earlier version."
        )
    return carried


def check(
    meta: Any,
    placed: PlacementFile,
    profile: Profile | None = None,
    *,
    max_regression: float | None = None,
    what: str = "the graph",
) -> Check:
    """Whether a placement is still the one for a graph, and for a profile of it.

    meta: a MetaGraphDef. max_regression: by what share the step may be slower than promised.

    Raises:
        BadInputError: the profile is of another graph.
    """
    step = read_step(meta, what)
    graph, now = step.graph, None
    if profile is not None:
        # Its sizes may be measured, as those are that the placement's fingerprints are of.
        graph = profile.problem.graph
        if profile.graph_hash not in (None, step.graph_hash) or graph.names != step.graph.names:
            raise BadInputError(
                f"the profile is of another graph than {what}; one of this graph was expected: "
                "profile it, or leave out --profile."
            )
        carried = carried_over(placed, profile.problem)
        if carried.num_by_name:
            now = predicted(profile.problem, replay(profile.problem, carried.placement))
    return Check(
        graph=graph_changes(placed, graph, step.graph_hash),
        has_other_profile=None if profile is None else _has_other_profile(placed, profile, now),
        before=promised(placed),
        now=now,
        max_regression=max_regression,
    )


def _has_other_profile(placed: PlacementFile, profile: Profile, now: Prediction | None) -> bool:
    """By the hashes of the two or, of a profile that is in no file, by what it predicts."""
    hashes = (placed.provenance.get("profile_hash"), profile.file_hash)
    if all(hashes):
        return hashes[0] != hashes[1]
    return now is None or now.step_us != promised(placed).step_us


def diff(first: PlacementFile, second: PlacementFile, profile: Profile | None = None) -> Difference:
    """What a second placement has otherwise than a first.

    Figures are by the profile for placements of its ops, else as they stand in the file.

    Raises:
        BadInputError: the profile is of neither.
    """
    changes = placement_changes(first, second)
    if profile is None:
        return Difference(changes, promised(first), promised(second))
    problem = profile.problem
    is_of_both = [set(placed.names) == set(problem.graph.names) for placed in (first, second)]
    if not any(is_of_both):
        raise BadInputError(
            "the profile has other ops than both placements; one of a placement's graph was "
            "expected: profile that, or leave out --profile."
        )
    before, after = (
        predicted(problem, replay(problem, placed.match(problem))) if is_its else promised(placed)
        for placed, is_its in zip((first, second), is_of_both, strict=True)
    )
    work_us = dict(zip(problem.graph.names, problem.min_duration_us.tolist(), strict=True))
    return Difference(changes, before, after, work_us)


def random_orders_us(
    profile: Profile, placed: PlacementFile, count: int = 20, seed: int = 0
) -> FloatArray:
    """Makespans where only the devices of a placement are applied, `[count]`."""
    device = placed.match(profile.problem).device
    return order.random_orders_us(Simulator(profile.problem), device, count, seed)


def report(profile: Profile, placements: Mapping[str, PlacementFile], title: str = "") -> str:
    """A page of HTML that shows placements of a profile, by the names that they are to have.

    Each is compared with `single` and `expert`, which are solved unless one of them is by these.
    """
    problem = profile.problem
    shown = []
    for name, placed in placements.items():
        result = simulate(profile, placed)
        held = held_over_time(problem, result.schedule)
        chain = critical_chain(problem, result.schedule)
        shown.append(Shown(name, result, held, chain, placed.provenance, placed.file_hash))
    given = {each.result.strategy: each.result for each in shown}
    baselines = [given.get(name) or compare(profile, [name])[0] for name in REPORT_BASELINES]
    coarsening = coarsen_problem(problem, REPORT_NODES)
    coarse = Coarse(coarsening.problem, coarsening.node_of_op)
    return report_page(title, profile, shown, baselines, coarse)


Placed = Result | Schedule | PlacementFile


def timeline(profile: Profile, placed: Placed, **options: Any) -> Any:
    """What runs when on devices and links, with the critical chain, as an altair chart.

    options: `title`, `width` in pixels, `most_bars`.

    Example:
        >>> timeline(profile, solve(profile), width=700)
    """
    schedule = _schedule(profile, placed)
    chain = critical_chain(profile.problem, schedule)
    return timeline_chart(profile.problem, schedule, chain, **options)


def memory(profile: Profile, placed: Placed, **options: Any) -> Any:
    """What every device holds over time, as a share of what it may, as an altair chart.

    options: `title`, `width` in pixels, `most_steps` in time.

    Example:
        >>> save("memory.svg", memory(profile, load("rnnlm.placement.json")))
    """
    schedule = _schedule(profile, placed)
    held = held_over_time(profile.problem, schedule)
    return memory_chart(profile.problem, schedule, held, **options)


def layers(profile: Profile, placed: Placed, **options: Any) -> Any:
    """A graph of some hundred ops at most by height and device, as an altair chart.

    options: `title`, `width` in pixels, `notes`: a text for every op.

    Example:
        >>> coarse = coarsen(profile, 60)
        >>> layers(coarse, solve(coarse, time_limit_s=5))
    """
    return layers_chart(profile.problem, _schedule(profile, placed).device, **options)


def merges(profile: Profile, round_: Round, **options: Any) -> Any:
    """What a round of `coarsen` merged of some tens of nodes at most, as an altair chart.

    options: `title`.

    Example:
        >>> merges(profile, rounds[0])
    """
    return merges_chart(considered(profile, round_), **options)


def _schedule(profile: Profile, placed: Placed) -> Schedule:
    if isinstance(placed, PlacementFile):
        placed = simulate(profile, placed)
    return placed.schedule if isinstance(placed, Result) else placed


def to_networkx(what: OpGraph | Profile, placed: Placed | None = None) -> Any:
    """A `networkx.MultiDiGraph` of the ops; its attributes are listed in `graph_networkx`.

    Args:
        what: a profile, whose op times come with it, or a graph.
        placed: gives every node its device and rank; needs a profile.

    Raises:
        BadInputError: the placement is of other ops, or comes with a graph.

    Example:
        >>> networkx.dag_longest_path_length(to_networkx(profile))
    """
    if isinstance(what, OpGraph):
        return graph_to_networkx(what)
    schedule = None if placed is None else _schedule(what, placed)
    return graph_to_networkx(what.problem, schedule)


def from_networkx(graph: Any, machine: Machine | str | None = None) -> Profile:
    """The profile of a `networkx.DiGraph` or `MultiDiGraph`.

    Args:
        graph: nodes with `time_us`, edges with `bytes`; all else has defaults.
        machine: in place of the one that the graph carries.

    Raises:
        BadInputError: a cycle, or an attribute that is missing or does not fit.
        InfeasibleError: an op or colocation group has no device.

    Example:
        >>> from_networkx(to_networkx(profile))
    """
    known = read_machine(machine) if isinstance(machine, str) else machine
    return Profile(problem_from_networkx(graph, known), {"source": "networkx"})


def profile_by_run(
    meta: Any,
    cluster: Cluster,
    *,
    steps: int = 100,
    warm_up: int = 5,
    feeds: str | None = None,
    **options: Any,
) -> Profile:
    """Profile a graph by steps that are really run; `options` as of `profile`.

    They run on one device of each kind, or spread over all by layers if they do not fit there.

    Raises:
        InfeasibleError: they do not fit so either.
    """
    spread = _spread_to_fit(meta, cluster.machine, options.get("what", "the graph"))
    live = Live(cluster, steps, warm_up, feeds, spread)
    return profile_graph(meta, cluster.machine, source="run", live=live, **options)


def _spread_to_fit(meta: Any, machine: Machine, what: str) -> PlacementFile | None:
    """None if a graph fits on one device, else its layers over all of them.

    Nothing is known of the times yet: all ops are taken to be equal.
    """
    step = read_step(meta, what)
    most_bytes = int(step.graph.resident_bytes.sum() + step.graph.tensor_bytes.sum())
    if most_bytes <= min(device.memory_bytes for device in machine.devices):
        return None
    time_us = {
        device.kind: np.where(step.supported[machine.device_type(device.kind)], 1.0, np.nan)
        for device in machine.devices
    }
    unpriced = Profile(Problem.build(step.graph, time_us, machine))
    (alone,) = compare(unpriced, ["single"])
    if alone.status is not SolveStatus.OUT_OF_MEMORY:
        return None
    return placement(unpriced, solve(unpriced, "expert"))


def run_steps(
    meta: Any,
    cluster: Cluster,
    placements: Sequence[PlacementFile | None],
    *,
    steps: int = 50,
    warm_up: int = 5,
    feeds: str | None = None,
) -> list[RealRun]:
    """Run a graph under every placement (None: as it stands), by turns: see `runtime.comparison`.

    `with pesto.connected("local-workers:2") as cluster:` gives the devices.
    """
    return compared(meta, cluster, placements, Turns(steps, warm_up), feeds)


def predicted_us(placed: PlacementFile, profile: Profile | None = None) -> float | None:
    """The step time that a placement promises: by a profile, else as its file has it."""
    if profile is not None:
        machine = profile.problem.machine
        return simulate(profile, placed).makespan_us + machine.step_overhead_us
    step_us: float | None = placed.predicted.get("step_us", placed.predicted.get("makespan_us"))
    return step_us


def check_same_machine(profile: Profile, machine: Machine) -> None:
    """Refuse a profile of other devices than a machine's.

    Raises:
        BadInputError: naming both.
    """
    profiled = [(device.name, device.kind) for device in profile.problem.machine.devices]
    present = [(device.name, device.kind) for device in machine.devices]
    if profiled != present:
        found, expected = (
            ", ".join(f"{name} ({kind})" for name, kind in devices)
            for devices in (profiled, present)
        )
        raise BadInputError(
            f"the profile is of another machine: it has {found}; {expected} were expected: profile "
            "the graph on this machine (pesto profile --machine ... --source run)."
        )


def _show_values_in_notebooks() -> None:
    """Where IPython runs, and only there."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None:
        register(shell, critical_path_us)


_show_values_in_notebooks()
