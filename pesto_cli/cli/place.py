"""`place`: export, profile, solve and apply in one command."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import join
from typing import Any

import click

from pesto_cli.cli.activity import connected
from pesto_cli.cli.options import (
    FOLDER_SUFFIX,
    PATH,
    deterministic_option,
    json_option,
    machine_option,
    output_option,
    parts_option,
    quiet_option,
    robust_option,
    seed_option,
    step_options,
    time_limit_option,
)
from pesto_cli.cli.output import echo, echo_json
from pesto_cli.cli.place_folder import FILES, check_paths, locked
from pesto_cli.cli.place_steps import Run, Target, applied, exported, profiled, solved
from pesto_cli.cli.problem_options import asked, problem_options
from pesto_cli.cli.reporting import write_page
from pesto_cli.cli.searches import print_notes
from pesto_cli.errors import INTERRUPTED

# The result is compared with these strategies, which take little time.
BASELINES = ("single", "expert")


@contextmanager
def _opened(name: str, comm: Path | None, quiet: bool) -> Iterator[Target]:
    """Read the description of a machine, or start its real devices until the context ends."""
    from pesto_cli import api

    fits = None if comm is None else api.read_comm(comm)
    if api.is_live(name):
        with connected(name, False, quiet) as cluster:
            yield Target(cluster.machine, cluster, fits)
    else:
        yield Target(api.read_machine(name, "local-workers:N", "local-gpus"), None, fits)


@click.command(short_help="Place SOURCE on a machine: export, profile, solve and apply in one.")
@click.argument("source")
@machine_option
@output_option("the placed graph (.meta)")
@time_limit_option()
@click.option("--report", type=PATH, help="Also write a page that shows the placement (.html).")
@click.option("--comm", type=PATH, help="A fit by `pesto comm`, in place of the machine's links.")
@parts_option("Also try to split ops; price parts of ops that are split into N parts, such as 2,4.")
@step_options
@seed_option
@deterministic_option
@robust_option
@problem_options
@json_option
@quiet_option()
def place(
    source: str,
    machine: str,
    output: Path,
    report: Path | None,
    comm: Path | None,
    parts: tuple[int, ...],
    robust: bool,
    fetches: tuple[str, ...],
    feeds: tuple[str, ...],
    signature: str | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Place the training step of SOURCE on a machine.

    Does what export, profile, solve and apply do one after the other. SOURCE is what export takes,
    such as script.py:function or zoo:NAME, or a graph that it wrote. The files of the single steps
    are kept in a folder next to the output, named after it with the ending .pesto. A second call
    reuses those that are still fresh, and starts the search from an older placement.
    """
    from pesto_cli import api
    from pesto_cli.api.placing import without_choices
    from pesto_cli.data.result import SolveStatus
    from pesto_cli.graphdef.fetches import parse_feed
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.samples import robust_tables
    from pesto_cli.report.splits import split_tables
    from pesto_cli.report.tables import comparison

    check_paths(source, output, report, comm, options["constraints"])
    of_problem = asked(options)  # fails before the work begins
    step = {"fetches": fetches, "feeds": dict(map(parse_feed, feeds)), "signature": signature}
    with locked(output.with_suffix(FOLDER_SUFFIX)) as folder:
        run = Run(folder, quiet)
        with _opened(machine, comm, quiet) as target:
            meta = exported(run, source, step)
            profile = profiled(run, meta, target, source, parts)
        record = dict(of_problem.record)
        priced = of_problem.constrained(profile, run.path("profile.json"), quiet)
        settings = {"solver": "cpsat", "workers": None, **options}
        result = solved(run, meta, priced, settings, record, robust)
        placed = api.read_placement(run.path("placement.json"))
        changes = applied(run, meta, placed, output, source)
        if report is not None:
            write_page(report, priced, {"pesto": placed}, folder.stem, quiet)
            run.tell("report", str(report))
    if as_json or not quiet:
        results = [*api.compare(without_choices(priced), BASELINES), result]
        if as_json:
            echo_json(_record(run, output, priced, results, changes))
        else:
            echo(err=True)
            table = comparison(str(output), priced.problem, results)
            print_layouts([table, *split_tables(result), *robust_tables(result)])
            print_notes(result)
            echo(gain_text(results, is_constrained=bool(of_problem.record)))
            echo("", "Next:", *_next_steps(run, output, machine, target, report), err=True)
    if result.status is SolveStatus.INTERRUPTED:
        echo(f"Interrupted: {output} has the best placement so far.", err=True)
        sys.exit(INTERRUPTED)


def _record(run: Run, output: Path, priced: Any, results: list[Any], changes: Any) -> Any:
    """Return the results and what was written, as JSON."""
    from pesto_cli.report.records import result_json

    return {
        "output": str(output),
        "folder": str(run.folder),
        "reused": run.reused,
        "num_nodes_placed": len(changes.device),
        "num_control_edges": changes.num_control_edges,
        "results": [result_json(priced.problem, result) for result in results],
    }


def _next_steps(
    run: Run, output: Path, machine: str, target: Target, report: Path | None
) -> Iterator[str]:
    """Yield lines with the commands that make use of the result."""
    graph, profile, placement = (str(run.path(name)) for name in FILES)
    files = join([profile, placement])
    if report is None:
        yield f"  see what runs when       pesto report {files} -o report.html"
    yield f"  see where the time goes  pesto explain {files}"
    yield f"  see all baselines        {join(['pesto', 'compare', profile])}"
    if target.cluster is not None:
        measure = ["pesto", "run", graph, "-m", machine, "--profile", profile, "--compare"]
        yield f"  measure real steps       {join([*measure, f'single,{placement}'])}"
    elif output.suffix != ".pb":  # such a file has no initialisation
        yield (
            "  train                    "
            f"tf.compat.v1.train.import_meta_graph({str(output)!r}), in a"
        )
        yield "                           session with config=pesto_cli.apply.session_config()"


def gain_text(results: Sequence[Any], *, is_constrained: bool = False) -> str:
    """Return the predicted step time, compared with the better baseline and with the bound.

    is_constrained: whether the options of the command allow some placements only.
    """
    from pesto_cli.data.result import SolveStatus
    from pesto_cli.report.splits import bounded_text
    from pesto_cli.report.times import time_text

    *baselines, result = results
    overhead_us = result.problem.machine.step_overhead_us
    step_us = result.makespan_us + overhead_us
    overhead = f", of which {time_text(overhead_us)} is overhead" if overhead_us else ""
    fitting = [each for each in baselines if each.status is not SolveStatus.OUT_OF_MEMORY]
    best = min(fitting, key=lambda each: each.makespan_us, default=None)
    if best is None:
        ratio = "the baselines do not fit into memory"
    else:
        times = (best.makespan_us + overhead_us) / step_us if step_us else 1.0
        ratio = f"{times:.2f} times as fast as {best.strategy}"
    which = bounded_text(result.solution)
    which += " that these options allow" if is_constrained else ""
    return (
        f"Predicted step time: {time_text(step_us)}{overhead}, {ratio}. No {which} on this machine "
        f"takes less than {time_text(result.lower_bound_us + overhead_us)}."
    )
