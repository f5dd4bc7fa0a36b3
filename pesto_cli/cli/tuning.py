"""`tune`: a plan that is chosen by measured steps."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from pesto_cli.cli.activity import activity, connected, notes_of_profiles
from pesto_cli.cli.options import (
    PATH,
    check_script,
    feeds_option,
    json_option,
    open_ports_option,
    output_option,
    parts_option,
    quiet_option,
    seed_option,
    time_limit_option,
)
from pesto_cli.cli.output import check_output, echo, echo_json
from pesto_cli.cli.problem_options import asked, problem_options
from pesto_cli.cli.searches import compile_before, stoppable
from pesto_cli.errors import INTERRUPTED, BadInputError

# What the fields of `tuning.factors.Factors` are on.
_FACTORS = {
    "ops": "op times",
    "contention": "contention",
    "transfers": "transfers",
    "network": "transfers between hosts",
    "overhead": "step overhead",
}


@click.command(short_help="Find the placement of GRAPH whose measured steps are the fastest.")
@click.argument("graph", type=PATH)
@click.argument("arguments", nargs=-1, metavar="[-- ARGS...]")
@click.option(
    "-m", "--machine", required=True, help="local-workers:N, local-gpus or a cluster file (TOML)."
)
@output_option("the placement")
@time_limit_option("Time limit of all measurements and searches together.", 600.0)
@click.option("--log", type=PATH, help="Write all measurements here; continue if the file exists.")
@click.option("--plot", type=PATH, help="Draw predicted and measured steps (.svg, .png, .html).")
@click.option("--profile", type=PATH, help="A profile of GRAPH on this machine, in place of one.")
@click.option("--comm", type=PATH, help="A fit by `pesto comm`, in place of timed transfers.")
@parts_option(
    "Try to split ops into N parts, such as 2,4.  [default: the number of devices, and twice as "
    "many]"
)
@click.option("--whole", is_flag=True, help="Keep all ops whole.")
@problem_options
@click.option("--corrected", type=PATH, help="Write the profile with the corrected costs.")
@feeds_option
@seed_option
@open_ports_option
@json_option
@quiet_option()
def tune(
    graph: Path,
    arguments: tuple[str, ...],
    machine: str,
    output: Path,
    plot: Path | None,
    corrected: Path | None,
    open_ports: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Find the placement of GRAPH whose measured steps on real devices are the fastest.

    Measures transfers and op times, then repeats: search for placements of several forms, run the
    best ones by turns, correct the costs by what was measured. A final round decides; a placement
    as people make it (single, expert, data-parallel) is the answer unless another one is clearly
    faster. Ctrl-C keeps the best one that was measured.

    GRAPH is an exported graph. It can also be a script that trains by Keras's fit or by sessions of
    TensorFlow 1: it runs with ARGS up to its first training step, and this step is tuned with the
    data that it feeds.
    """
    from pesto_cli import api
    from pesto_cli.report.charts import write_chart
    from pesto_cli.report.tuning_plot import tuning_chart

    check_script(graph, arguments)
    inputs = [graph, Path(machine)]
    _check_files([output, options["log"], plot, corrected], inputs, plot, options)
    _check_options(options)
    of_problem, shown = asked(options), Shown(as_json or quiet, quiet)
    settings = _settings(options) | {
        "settings": {**of_problem.record, **_of_parts(options)},
        "constrained": lambda priced: of_problem.constrained(priced, graph, quiet),
    }
    compile_before(quiet)
    with (
        _step(graph, arguments, options["feeds"], quiet) as (meta, feeds),
        shown.stoppable() as stop,
        connected(machine, open_ports, quiet) as cluster,
        notes_of_profiles(quiet),
    ):
        settings["limits"] = replace(settings["limits"], stop=stop)
        watch = shown.watch()
        found = api.tune(meta, cluster, **settings, feeds=feeds, on_round=shown.round, watch=watch)
    api.write_placement(output, found.placement)
    if corrected is not None:
        api.write_profile(corrected, found.costs.profile)
    if plot is not None:
        write_chart(plot, tuning_chart(found.log, f"{graph.name} on {machine}"))
    shown.end(found, as_json)
    leave_if_early(found, output)


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `api.tune` that the options give; reads their files."""
    from pesto_cli import api

    profile, comm = options["profile"], options["comm"]
    return {
        "time_limit_s": options["time_limit"],
        "profile": None if profile is None else api.read_profile(profile),
        "comm": None if comm is None else api.read_comm(comm),
        "parts": () if options["whole"] else options["parts"] or None,
        "log": options["log"],
        "limits": api.Limits(seed=options["seed"], workers=os.cpu_count() or 1),
    }


def _of_parts(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that decide which parts are priced, for the log."""
    asked = {"whole": options["whole"], "parts": list(options["parts"] or ())}
    return {name: value for name, value in asked.items() if value}


@contextmanager
def _step(
    graph: Path, arguments: Sequence[str], feeds: str | None, quiet: bool
) -> Iterator[tuple[Any, str | None]]:
    """Yield the graph of the step, and the source of its feeds: for a script, those of its step."""
    from pesto_cli import api
    from pesto_cli.runtime.feeds import write_feeds

    with activity(f"reading {graph}", quiet):
        captured = api.capture(graph, arguments) if graph.suffix == ".py" else None
        meta = api.read_meta_graph(graph) if captured is None else captured.meta
    if captured is None or feeds is not None or not captured.feeds:
        yield meta, feeds
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "feeds.npz"
        write_feeds(path, captured.feeds)
        yield meta, str(path)


def _check_files(
    outputs: Sequence[Path | None],
    inputs: Sequence[Path],
    plot: Path | None,
    options: dict[str, Any],
) -> None:
    """Check all outputs before the work begins, and that they are not the inputs."""
    from pesto_cli.report.charts import check_chart_path
    from pesto_cli.runtime.feeds import source_file

    feeds = options["feeds"]
    inputs = [*inputs, options["profile"], options["comm"], options["constraints"]]
    inputs += [] if feeds is None else [source_file(feeds)]
    if plot is not None:
        check_chart_path(plot)
    for index, path in enumerate(outputs):
        if path is not None:
            check_output(path, *inputs, *outputs[:index], *outputs[index + 1 :])


def _check_options(options: dict[str, Any]) -> None:
    """Refuse options that contradict each other."""
    parts, whole = options["parts"], options["whole"]
    if parts and whole:
        raise BadInputError("--parts does not go with --whole, which splits no op; leave one out.")
    if options["profile"] is not None and (parts or whole or options["comm"] is not None):
        raise BadInputError(
            "--profile already has the links and the prices of parts; it was expected without "
            "--comm, --parts and --whole: leave them out, or leave out --profile."
        )


class Shown:
    """What a tuning prints: tables of its rounds to stdout, notes to stderr; and Ctrl-C."""

    def __init__(self, without_tables: bool, quiet: bool) -> None:
        self._without_tables, self._quiet = without_tables, quiet
        self._phase = ""

    def watch(self) -> Any:
        """Return what the tuning tells about its work."""
        from pesto_cli.tuning.watch import Watch

        return Watch(self._during, self._note)

    @contextmanager
    def _during(self, phase: str, what: str) -> Iterator[None]:
        self._phase = phase
        try:
            with activity(what, self._quiet):
                yield
        finally:
            self._phase = ""

    @contextmanager
    def stoppable(self) -> Iterator[threading.Event]:
        """Yield an event that Ctrl-C sets during a search; otherwise it ends the work at once."""
        with stoppable() as stop:
            set_event = signal.getsignal(signal.SIGINT)

            def request_stop(signum: int, frame: Any) -> None:
                if self._phase != "search" or not callable(set_event):
                    raise KeyboardInterrupt
                set_event(signum, frame)

            signal.signal(signal.SIGINT, request_stop)
            yield stop

    def _note(self, text: str) -> None:
        if not self._quiet:
            echo(text, err=True)

    def round(self, log: Any) -> None:
        """Print the table of the newest round."""
        from pesto_cli.report.layouts import print_layouts
        from pesto_cli.report.tuning import round_tables

        if not self._without_tables:
            print_layouts(round_tables(log)[-1:])

    def end(self, found: Any, as_json: bool) -> None:
        """Print the answer and what the time was used for."""
        from pesto_cli.report.tuning import shares_text

        if as_json:
            echo_json(tuning_json(found))
        elif not self._quiet:
            step_us = found.placement.predicted["measured_us"]
            echo(answer_text(found.choice, step_us, is_final=found.ended == "done"))
            shares = shares_text(found.shares, found.seconds)
            echo(factors_text(found.costs.fit), shares, err=True)


def leave_if_early(found: Any, output: Path | None) -> None:
    """End the command if the tuning failed or was interrupted. output: has the placement."""
    has_best = "" if output is None else f"{output} has the best placement that was measured"
    if found.error is not None:
        if has_best:
            echo(f"{has_best} before the failure.", err=True)
        raise found.error
    if found.ended == "interrupted":
        echo(f"Interrupted: {has_best}." if has_best else "Interrupted.", err=True)
        sys.exit(INTERRUPTED)


def tuning_json(found: Any) -> dict[str, Any]:
    """Return the result of a tuning as a JSON value."""
    return {
        "ended": str(found.ended),
        "seconds": found.seconds,
        "shares": dict(found.shares),
        **decision_json(found.log, found.choice, found.costs.fit),
    }


def decision_json(log: Any, choice: Any, fit: Any) -> dict[str, Any]:
    """Return the rounds of a log, the decision and the fitted factors as a JSON value."""
    from pesto_cli.report.tuning import rounds_json

    return {
        "choice": asdict(choice),
        "factors": asdict(fit.factors),
        "deviations": dict(fit.deviation),
        "rounds": rounds_json(log),
    }


def factors_text(fit: Any) -> str:
    """Return the fitted factors with their standard deviations, in one line."""
    fitted = ", ".join(
        f"{_FACTORS[name]} x {getattr(fit.factors, name):.3f} ± {deviation:.3f}"
        for name, deviation in fit.deviation.items()
    )
    return f"Fitted to the measured steps: {fitted}."


def answer_text(choice: Any, step_us: float, *, is_final: bool) -> str:
    """Return the answer of a tuning, compared with the fastest simple placement.

    step_us: its measured step. is_final: whether a final round has decided.
    """
    from pesto_cli.report.times import time_text

    what = "Answer" if is_final else "Best so far"
    answer = f"{what}: {choice.answer}, measured {time_text(step_us)}"
    if choice.faster is None:
        is_simple = choice.answer == choice.simple
        remark = ", a simple placement: no other one was faster" if is_simple else ""
        return f"{answer}{remark}."
    times = (
        f"{choice.faster.times:.3f} times as fast as {choice.simple} (95 %: "
        f"{choice.faster.low:.3f} - {choice.faster.high:.3f})"
    )
    if choice.answer == choice.fastest:
        return f"{answer}, {times}."
    return f"{answer}. {choice.fastest} is {times}, which is not clearly faster."
