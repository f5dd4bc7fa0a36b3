"""Programs in the style of public examples go through the pipeline with identical training."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import programs_of_others
import pytest
from two_cpus import two_cpus

from pesto_cli import api
from pesto_cli.apply import run_script
from pesto_cli.data.machine import CommModel
from pesto_cli.data.presets import PRESETS
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.graphdef.programs.run import run_program

PROGRAMS = Path(programs_of_others.__file__)

# Largest number of variables that an op forces onto one device: those of a layer that is a loop.
PLACED = {
    "small_cnn": 1,
    "mobile_net_v3_block": 1,
    "bidirectional_lstm": 3,
    "unrolled_gru": 1,
    "stateful_lstm": 3,
    "text_transformer": 1,
    "gpt_2_with_tied_embeddings": 1,
    "exponential_moving_average": 1,
    "dicts_and_sample_weights": 1,
    "preprocessing_layers": 1,
    "dcgan": 1,
    "variational_autoencoder": 1,
    "custom_loop": 1,
    "loss_scale_in_a_loop": 1,
    "gradient_penalty": 1,
    "recomputed_layers": 1,
    "module_with_loops": 2,
    "while_loop_with_a_list": 1,
}
REFUSED = {
    "value_as_a_number": r"in line \d+ \(step\): AttributeError: .* no attribute 'numpy'",
    "sizes_that_differ": r"in line \d+: ValueError: Dimensions must be equal",
    "two_layers_of_one_name": "ValueError: .* unique names",
    "tensor_of_another_trace": "exists only within another trace. If a layer keeps it, call the",
    "variable_in_the_step": "cannot be traced: UnliftableError",
    "fits_itself": "returned a History, where a train op, .* or a compiled Keras model",
    "lookup_in_the_model": "such as a lookup table .* Save the model",
    "recomputed_by_keras": r"\(train_step\): ValueError: .*\(\)\. The custom_gradient decorator",
    "ragged_words": r"'x' has the shape \[\?\], .* --feed x=32",
    "data_set_in_the_step": "or an iterator, .* pass the data as arguments",
}

Solved = Callable[[Any], tuple[Profile, PlacementFile]]


@pytest.fixture
def solved() -> Solved:
    """Profile a graph and solve it for two CPUs with free links."""
    cpus = two_cpus().machine
    links = tuple(replace(link, comm=CommModel(0.0, 0.0)) for link in cpus.links)
    machine = replace(cpus, links=links, kinds=PRESETS["v100x2-nvlink"].kinds)

    def of(meta: Any) -> tuple[Profile, PlacementFile]:
        profile = api.profile(meta, machine)
        chosen = api.placement(profile, api.solve(profile, time_limit_s=0.1, deterministic=True))
        assert set(chosen.device) == {0, 1}
        return profile, chosen

    return of


@pytest.mark.parametrize("name", PLACED)
def test_a_program_trains_on_two_devices_as_it_does_without_a_placement(
    name: str, solved: Solved
) -> None:
    meta = api.export(f"{PROGRAMS}:{name}")
    profile, chosen = solved(meta)
    graph = profile.problem.graph
    assert np.bincount(graph.colocation_group, graph.resident_bytes > 0).max() == PLACED[name]
    alone, placed = api.run_steps(meta, two_cpus(), [None, chosen], steps=3, warm_up=0)
    assert placed.verification.departures == ()
    assert placed.verification.num_ops > 0.6 * graph.num_ops
    assert placed.times.losses == alone.times.losses
    assert len(set(alone.times.losses)) > 1
    assert np.isfinite(alone.times.losses).all()


def test_a_script_with_towers_and_moving_averages_runs_unmodified(
    solved: Solved, capsys: pytest.CaptureFixture[str]
) -> None:
    _, chosen = solved(api.capture(PROGRAMS).meta)
    run_program(PROGRAMS, [])
    expected = capsys.readouterr().out
    assert expected.count("0x") == 3
    report = run_script(PROGRAMS, [], chosen)
    # On some processors, TensorFlow's optimiser rounds the step without a placement differently.
    placed = [float.fromhex(text) for text in capsys.readouterr().out.split()]
    assert placed == pytest.approx([float.fromhex(text) for text in expected.split()], rel=1e-6)
    assert report.changes.num_control_edges > 0


@pytest.mark.parametrize("name", REFUSED)
def test_a_step_that_cannot_be_placed_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(BadInputError, match=REFUSED[name]) as refused:
        api.export(f"{PROGRAMS}:{name}")
    assert "\n" not in str(refused.value)
