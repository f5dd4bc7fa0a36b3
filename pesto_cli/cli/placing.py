"""`coarsen`, `solve`, `simulate` and `compare`: commands that make or evaluate placements."""

import json
import sys
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from pesto_cli.cli.activity import searching
from pesto_cli.cli.choices import STRATEGIES, ChoiceOption, SearchCommand
from pesto_cli.cli.options import (
    PATH,
    json_option,
    listed,
    num_nodes_option,
    output_option,
    quiet_option,
    robust_option,
    search_options,
    summary_option,
)
from pesto_cli.cli.output import check_output, echo, echo_json, echo_text
from pesto_cli.cli.problem_options import asked, problem_options
from pesto_cli.cli.searches import (
    check_takes_start,
    context_from,
    made_by,
    map_placement,
    parameters_from,
    print_notes,
    stoppable,
)
from pesto_cli.errors import INTERRUPTED, about


@click.command()
@click.argument("profile", type=PATH)
@output_option("the coarse profile")
@num_nodes_option
@click.option("--placement", type=PATH, help="Merge the ops into which this placement splits them.")
@json_option
@quiet_option()
def coarsen(
    profile: Path,
    output: Path,
    num_nodes: int,
    placement: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Merge the ops of PROFILE to a coarse graph by height-based batch merging."""
    from pesto_cli import api

    check_output(output, profile, placement)
    fine = api.read_profile(profile)
    if placement is not None:
        placed = api.read_placement(placement)
        with about(placement):
            placed.check_graph_ops(fine.problem.graph.names)
        fine = api.rewritten(fine, api.plan(placed))
    coarse = api.coarsen(fine, num_nodes)
    api.write_profile(output, coarse)
    rows = {
        name: {
            "ops": part.problem.num_ops,
            "tensors": part.problem.graph.num_tensors,
            "critical_path_us": api.critical_path_us(part.problem),
        }
        for name, part in (("fine", fine), ("coarse", coarse))
    }
    if as_json:
        echo_json(rows)
    elif not quiet:
        for name, row in rows.items():
            echo(
                f"{name:6} {row['ops']:6} ops, {row['tensors']:6} tensors, "
                f"critical path {row['critical_path_us'] / 1e3:.2f} ms"
            )


@click.command(cls=SearchCommand, short_help="Find a device and an execution order for all ops.")
@click.argument("profile", type=PATH)
@output_option("the placement")
@click.option(
    "--strategy",
    cls=ChoiceOption,
    choices=STRATEGIES,
    default="pesto",
    show_default=True,
    help="Strategy: {names}.",
)
@search_options
@problem_options
@robust_option
@click.option(
    "--warm-start",
    type=PATH,
    help="A placement to start from, of this graph or of an earlier version.",
)
@click.option(
    "--weights", type=click.Path(), help="Weights of a learned policy to start from (pesto train)."
)
@summary_option
@json_option
@quiet_option()
def solve(
    profile: Path,
    output: Path,
    strategy: str,
    warm_start: Path | None,
    summary: Path | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Find a device for every op of PROFILE, and the execution order of every device."""
    from pesto_cli import api
    from pesto_cli.data.result import SolveStatus
    from pesto_cli.files.job_summary import append_summary
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.records import result_json
    from pesto_cli.report.samples import robust_tables
    from pesto_cli.report.search_summary import solved_section
    from pesto_cli.report.sections import sections_markdown
    from pesto_cli.report.splits import split_tables
    from pesto_cli.report.tables import comparison

    weights = options["weights"]
    inputs = profile, options["constraints"], None if weights is None else Path(weights)
    check_output(output, *inputs)
    values = parameters_from([strategy], options)
    if summary is not None:
        check_output(summary, output, warm_start, *inputs)
    of_problem = asked(options)
    read = dict(of_problem.record)
    priced = of_problem.constrained(api.read_profile(profile), profile, quiet)
    if options["weights"] is not None:
        read["weights"] = api.read_weights(options["weights"]).file_hash
    start = None
    if warm_start is not None:
        check_takes_start(strategy)
        start = map_placement(warm_start, priced, quiet, read)
    with stoppable() as stop:
        context = context_from(options, stop, quiet)
        if start is not None and start.num_by_name:
            context = replace(context, warm_start=start.placement, split_start=start.split_start)
        with searching(strategy, context, quiet) as watched:
            result = api.solve(priced, strategy, watched, **values)
    parameters = made_by(strategy, values, options) | read
    placed = api.placement(priced, result, dict(sorted(parameters.items())))
    api.write_placement(output, placed)
    if summary is not None:
        section = solved_section(priced.problem, result)
        append_summary(summary, sections_markdown(f"{output.name}: solved", [section]))
    if as_json:
        echo_json(result_json(priced.problem, result))
    elif not quiet:
        tables = [comparison(str(output), priced.problem, [result])]
        print_layouts([*tables, *split_tables(result), *robust_tables(result)])
        print_notes(result)
    if result.status is SolveStatus.INTERRUPTED:
        echo(f"Interrupted: the best schedule so far is in {output}.", err=True)
        sys.exit(INTERRUPTED)


@click.command(short_help="Simulate a placement of PROFILE, and check it.")
@click.argument("profile", type=PATH)
@click.option("--placement", type=PATH, required=True, help="The placement to simulate.")
@click.option("--trace", type=PATH, help="Write a Chrome trace, for Perfetto.")
@click.option(
    "--random-orders",
    type=click.IntRange(min=1),
    metavar="N",
    help="Also simulate N random execution orders on the same devices.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    metavar="N",
    help="Also simulate N samples of op times and delays, which vary as they were measured.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Random seed for --random-orders and --samples.",
)
@json_option
@quiet_option()
def simulate(
    profile: Path,
    placement: Path,
    trace: Path | None,
    random_orders: int | None,
    samples: int | None,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Simulate a placement of PROFILE, and check it against all rules of the execution model.

    Every device runs its ops strictly in the order of the placement.
    """
    from pesto_cli import api
    from pesto_cli.evaluation.memory import held_over_time
    from pesto_cli.files import atomic_write
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.memory import memory_text
    from pesto_cli.report.random_orders import random_order_figures, random_orders_table
    from pesto_cli.report.records import result_json
    from pesto_cli.report.samples import sample_figures, samples_table
    from pesto_cli.report.splits import split_tables
    from pesto_cli.report.tables import comparison
    from pesto_cli.report.trace import chrome_trace

    if trace is not None:
        check_output(trace, profile, placement)
    priced = api.read_profile(profile)
    placed = api.read_placement(placement)
    result = api.simulate(priced, placed)
    record = result_json(priced.problem, result, placed.whole_load)
    tables = [comparison(placement.name, priced.problem, [result]), *split_tables(result)]
    if random_orders is not None:
        random_us = api.random_orders_us(priced, placed, random_orders, seed)
        found = random_order_figures(result.makespan_us, random_us)
        record["random_orders"] = {"seed": seed, "makespan_us": random_us.tolist(), **asdict(found)}
        tables.append(random_orders_table(result.makespan_us, found))
    if samples is not None:
        sampled_us = api.sampled_makespans_us(priced, placed, samples, seed)
        figures = sample_figures(sampled_us)
        record["samples"] = {"seed": seed, "makespan_us": sampled_us.tolist(), **asdict(figures)}
        tables.append(samples_table(result.makespan_us, figures))
    if trace is not None:
        held = held_over_time(result.problem, result.schedule)
        value = chrome_trace(result.problem, result.schedule, held)
        atomic_write(trace, json.dumps(value).encode())
    if as_json:
        echo_json(record)
    elif not quiet:
        print_layouts(tables)
        if result.memory_peaks:
            echo_text(memory_text(result.memory_peaks), err=True)


@click.command(cls=SearchCommand, short_help="Compare strategies on PROFILE.")
@click.argument("profile", type=PATH)
@click.option(
    "--strategies",
    cls=ChoiceOption,
    choices=STRATEGIES,
    default="all",
    show_default=True,
    metavar="A,B,...",
    help="all, or some of {names}.",
)
@search_options
@problem_options
@json_option
@quiet_option("no progress, only the table")
def compare(profile: Path, strategies: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Solve PROFILE by several strategies; print one row each, with lower bound and gap."""
    from pesto_cli import api
    from pesto_cli.api.placing import without_learning
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.records import result_json
    from pesto_cli.report.tables import comparison, expert_remark
    from pesto_cli.strategies.run import leaving_out, run

    if strategies == "all":
        names = without_learning()
    else:
        some = f"all, or some of {', '.join(api.STRATEGIES)}"
        names = listed("--strategies", strategies, some)
    values = parameters_from(names, options)
    priced = asked(options).constrained(api.read_profile(profile), profile, quiet)
    results: list[Any] = []
    unfit: list[str] = []
    with stoppable() as stop:
        context = context_from(options, stop, quiet)
        for name in names:
            with ExitStack() as around:
                if strategies == "all":
                    around.enter_context(leaving_out(name, unfit))
                watched = around.enter_context(searching(name, context, quiet))
                results.append(run(priced.problem, name, watched, **values))
    for text in () if quiet else unfit:
        echo(text, err=True)
    if as_json:
        echo_json([result_json(priced.problem, result) for result in results])
    else:
        title = f"{profile.name}: {priced.problem.num_ops} ops"
        print_layouts([comparison(title, priced.problem, results)])
        if not quiet and (remark := expert_remark(results)):
            echo(remark, err=True)
    if stop.is_set():
        sys.exit(INTERRUPTED)
