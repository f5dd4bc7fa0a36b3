"""`train`: train a learned policy."""

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pesto_cli.cli.activity import activity, connected
from pesto_cli.cli.options import (
    PATH,
    feeds_option,
    json_option,
    output_option,
    quiet_option,
    seed_option,
    time_limit_option,
)
from pesto_cli.cli.output import check_output, echo, echo_json
from pesto_cli.cli.searches import stoppable
from pesto_cli.errors import INTERRUPTED, BadInputError, NoSolutionError, about


@click.command(short_help="Train a policy that places graphs.")
@click.argument("policy")
@click.argument("profiles", type=PATH, nargs=-1, required=True, metavar="PROFILE...")
@output_option("the weights (.npz)")
@time_limit_option("Time limit of the training, without the start of TensorFlow.")
@click.option(
    "--placements",
    type=click.IntRange(min=1),
    metavar="N",
    help="Train by N placements, in place of a time limit; the same N give the same weights.",
)
@click.option(
    "--settings",
    type=click.Choice(["paper", "program"]),
    help="Sizes and settings of the policy's paper or of its authors' program.  [default: smaller]",
)
@click.option("--weights", type=PATH, help="Weights to continue from; their seed is kept.")
@click.option(
    "-m",
    "--machine",
    help="Take the rewards from real steps on local-workers:N, local-gpus or a cluster file.",
)
@click.option("--graph", type=PATH, help="With --machine: the exported graph of the profile.")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --machine: timed steps of each placement.  [default: 10]",
)
@click.option(
    "--best", type=PATH, help="With --machine: write the placement with the least measured step."
)
@feeds_option
@seed_option
@click.option("--plot", type=PATH, help="Draw the reward curve (.svg, .png, .html).")
@json_option
@quiet_option()
def train(
    policy: str,
    profiles: tuple[Path, ...],
    output: Path,
    time_limit: float,
    placements: int | None,
    settings: str | None,
    weights: Path | None,
    machine: str | None,
    graph: Path | None,
    steps: int | None,
    best: Path | None,
    feeds: str | None,
    seed: int,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train POLICY (spotlight, grl, heterog) on profiles, by simulated steps of sampled placements.

    The profiles take turns. `pesto solve --weights` uses the result. With --machine, the steps are
    real ones, of the graph of one profile.
    """
    from pesto_cli import api
    from pesto_cli.api.training import name_of_trials, policy_named
    from pesto_cli.report.charts import write_chart
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.reward_curve import curve_chart, curve_table
    from pesto_cli.runtime.feeds import source_file

    learner = policy_named(policy, settings)
    _check_real(machine, graph, steps, best, feeds)
    source = None if feeds is None else source_file(feeds)
    _check_outputs(output, best, plot, (*profiles, graph, source), weights)
    _check_start(weights, settings)
    start = None if weights is None else api.read_weights(weights)
    priced = [api.read_profile(path) for path in profiles]
    names = {
        name_of_trials(each, is_measured=machine is not None): str(path)
        for path, each in zip(profiles, priced, strict=True)
    }
    if start is not None:
        with about(weights):
            start.state_for(start.configured(learner), priced[0].problem.num_devices)
    with activity(f"starting {policy}", quiet):
        api.warm_up()
    fastest = _Fastest(best, _least_us(best, start, names))
    with (
        _real_steps(machine, graph, steps, feeds, fastest, quiet) as real,
        stoppable() as stop,
    ):
        limits = api.Limits(time_limit, seed, os.cpu_count() or 1, stop=stop)
        training = partial(api.train, learner, priced, start, limits, placements, real)
        done = _written(training, output, _silent if quiet else _log(names))
    if done is None:
        nothing = f"before the first iteration: nothing was learned, so {output} is not written"
        if not stop.is_set():
            raise NoSolutionError(f"the time limit ended {nothing}; set a longer one.")
        echo(f"Interrupted {nothing}.", err=True)
        sys.exit(INTERRUPTED)
    curve = done.state.curve
    if plot is not None:
        write_chart(plot, curve_chart(curve, names))
    if as_json:
        echo_json([asdict(point) for point in curve])
    elif not quiet:
        print_layouts([curve_table(str(output), curve, names)])
        fastest.tell()
    if stop.is_set():
        echo(f"Interrupted: the weights so far are in {output}.", err=True)
        sys.exit(INTERRUPTED)


def _written(training: Callable[..., Any], output: Path, watch: Callable[[Any], None]) -> Any:
    """Train and write the weights, also those from before a failure; return the trained policy.

    If there was no iteration, nothing is written, and the result is None.

    training: takes the function that is called after each iteration.
    """
    from pesto_cli import api

    newest: list[Any] = []

    def iterated(trained: Any) -> None:
        newest[:] = [trained]
        watch(trained.state)

    try:
        trained = training(iterated)
    except BaseException:
        for each in newest:
            api.write_weights(output, each)
            echo(f"{output} has the weights from before the failure.", err=True)
        raise
    if not newest:
        return None
    api.write_weights(output, trained)
    return trained


def _check_real(machine: str | None, graph: Path | None, *others: Any) -> None:
    """Refuse options of real steps without the others."""
    if machine is None and any(each is not None for each in (graph, *others)):
        raise BadInputError(
            "--graph, --steps, --best and --feeds are for real steps; --machine was expected with "
            "them."
        )
    if machine is not None and graph is None:
        raise BadInputError(
            "--machine runs real steps; --graph GRAPH was expected: the exported graph that was "
            "profiled."
        )


def _check_outputs(
    output: Path,
    best: Path | None,
    plot: Path | None,
    inputs: Iterable[Path | None],
    weights: Path | None,
) -> None:
    """Check that the files can be written, and that none of them replaces another one."""
    from pesto_cli.report.charts import check_chart_path

    check_output(output, *inputs, endings=(".npz",))
    if best is not None:
        check_output(best, output, *inputs, weights)
    if plot is not None:
        check_chart_path(plot)
        check_output(plot, output, *inputs, weights, best)


def _least_us(best: Path | None, start: Any, names: Iterable[str]) -> float:
    """Return the least step of the training that continues, if its placement is in `best`."""
    if best is None or start is None or not best.exists():
        return math.inf
    trials = start.state.trials
    return min((trials[name].best_us for name in names if name in trials), default=math.inf)


class _Fastest:
    """Writes the placement with the least measured step so far.

    path: None to write none. least_us: the step of the placement that the file has already.
    """

    def __init__(self, path: Path | None, least_us: float) -> None:
        self._path, self._us, self._is_written = path, least_us, False

    def __call__(self, placed: Any, us: float) -> None:
        from pesto_cli import api

        if self._path is not None and us < self._us:
            self._us, self._is_written = us, True
            predicted = {**placed.predicted, "measured_us": us}
            api.write_placement(self._path, replace(placed, predicted=predicted))

    def tell(self) -> None:
        """Print what the file has."""
        from pesto_cli.report.times import time_text

        if self._is_written:
            echo(f"{self._path}: the fastest placement, {time_text(self._us)}", err=True)
        elif self._path is not None and math.isfinite(self._us):
            echo(f"{self._path} is kept: no placement was faster.", err=True)
        elif self._path is not None:
            echo(f"{self._path} is not written: no placement ran.", err=True)


@contextmanager
def _real_steps(
    machine: str | None,
    graph: Path | None,
    steps: int | None,
    feeds: str | None,
    on_measured: Callable[[Any, float], None],
    quiet: bool,
) -> Iterator[Any]:
    """Yield what runs real steps; None without --machine."""
    from pesto_cli import api

    if machine is None or graph is None:
        yield None
        return
    meta = api.read_meta_graph(graph)
    with connected(machine, False, quiet) as cluster:
        yield api.RealSteps(meta, cluster, steps or api.RealSteps.steps, feeds, on_measured)


def _check_start(weights: Path | None, settings: str | None) -> None:
    """Refuse options that the weights to continue from decide."""
    source = click.get_current_context().get_parameter_source("seed")
    if weights is not None and source is not ParameterSource.DEFAULT:
        raise BadInputError(
            f"--seed is given, but {weights} has the seed of its training; leave out one of them."
        )
    if weights is not None and settings is not None:
        raise BadInputError(
            f"--settings is for a new training, but {weights} has the settings of its own; leave "
            "out one of them."
        )


def _silent(state: Any) -> None:
    """Show nothing."""


def _log(names: Mapping[str, str]) -> Callable[[Any], None]:
    """Return a function that prints a line on stderr whenever the iterations have doubled."""
    from pesto_cli.report.reward_curve import point_text

    began, num_iterations = time.monotonic(), 0

    def log(state: Any) -> None:
        nonlocal num_iterations
        num_iterations += 1
        if num_iterations & (num_iterations - 1) == 0:
            clock = f"{time.monotonic() - began:6.1f} s  "
            with suppress(OSError):  # stderr is closed: no reason to stop
                echo(f"{clock}{point_text(state.curve[-1], names)}", err=True)

    return log
