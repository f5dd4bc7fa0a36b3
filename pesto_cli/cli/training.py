"""`train`: train a learned policy."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pesto_cli.cli.activity import activity
from pesto_cli.cli.options import (
    PATH,
    json_option,
    output_option,
    quiet_option,
    seed_option,
    time_limit_option,
)
from pesto_cli.cli.output import check_output, echo, echo_json
from pesto_cli.cli.searches import stoppable
from pesto_cli.errors import INTERRUPTED, BadInputError


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
@click.option("--weights", type=PATH, help="Weights to continue from; their seed is kept.")
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
    weights: Path | None,
    seed: int,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train POLICY (spotlight, grl, heterog) on profiles, by simulated steps of sampled placements.

    The profiles take turns. `pesto solve --weights` uses the result.
    """
    from pesto_cli import api
    from pesto_cli.report.charts import check_chart_path, write_chart
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.reward_curve import curve_chart, curve_table

    check_output(output, *profiles)
    if plot is not None:
        check_chart_path(plot)
        check_output(plot, output, *profiles, weights)
    _check_seed(weights)
    start = None if weights is None else api.read_weights(weights)
    priced = {path.name: api.read_profile(path) for path in profiles}
    names = {each.file_hash: name for name, each in priced.items()}
    with activity(f"starting {policy}", quiet):
        api.warm_up()
    with stoppable() as stop:
        limits = api.Limits(time_limit, seed, os.cpu_count() or 1, stop=stop)
        watch = _silent if quiet else _log(names)
        trained = api.train(policy, list(priced.values()), start, limits, placements, watch)
    api.write_weights(output, trained)
    curve = trained.state.curve
    if plot is not None:
        write_chart(plot, curve_chart(curve, names))
    if as_json:
        echo_json([asdict(point) for point in curve])
    elif not quiet:
        print_layouts([curve_table(str(output), curve, names)])
    if stop.is_set():
        echo(f"Interrupted: the weights so far are in {output}.", err=True)
        sys.exit(INTERRUPTED)


def _check_seed(weights: Path | None) -> None:
    source = click.get_current_context().get_parameter_source("seed")
    if weights is not None and source is not ParameterSource.DEFAULT:
        raise BadInputError(
            f"--seed is given, but {weights} has the seed of its training; leave out one of them."
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
