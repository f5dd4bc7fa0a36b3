"""Islands: groups of GPUs with fast links. Some large tensors are sent once to each group."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from split_training import check_equal, trained
from test_buckets import LAYERS, clipped
from test_split_search import on_machine, two_hosts
from training_graphs import exported

from pesto_cli import api
from pesto_cli.apply.splitting import split_graph
from pesto_cli.data.machine import CommModel, Machine
from pesto_cli.data.plan import Plan
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.violations import violations
from pesto_cli.files.plan import PlanSchema, plan_json, plan_of
from pesto_cli.sharding import conversions
from pesto_cli.sharding.problems import rewritten
from pesto_cli.strategies import intra_op
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import batch_plan, dealt
from pesto_cli.strategies.devices import accelerators, islands
from pesto_cli.strategies.meshes import Mesh, devices_of_equal_parts
from pesto_cli.strategies.run import run

PAIRS = (0, 0, 1, 1)
SLOW = CommModel(100.0, 1e-2)


@pytest.fixture(scope="module")
def meta() -> Any:
    return exported(clipped)


@pytest.fixture
def problem(meta: Any, monkeypatch: pytest.MonkeyPatch) -> Problem:
    """A step on two pairs of GPUs, with slow links between the pairs; 4 KiB count as large."""
    monkeypatch.setattr(conversions, "LARGE_BYTES", 4096)
    profile = api.profile(meta, "v100x4-nvlink", parts=(2, 4, 8))
    return on_machine(profile.problem, two_pairs())


def two_pairs() -> Machine:
    """Four GPUs of one host: GPU:0 and GPU:2 have a fast link to GPU:1 and GPU:3 each.

    Between the pairs, the links from GPU:0 to GPU:3, and from GPU:1 to GPU:2, are the slowest ones.
    """
    machine = PRESETS["v100x4-nvlink"]
    names = [device.name for device in machine.devices if "GPU" in device.name]
    between = {(a, b) for a in names[:2] for b in names[2:]}
    slowest = {(names[0], names[3]), (names[1], names[2])}

    def comm(src: str, dst: str, given: CommModel) -> CommModel:
        pair = tuple(sorted((src, dst)))
        if pair not in between:
            return given
        return replace(SLOW, us_per_byte=2e-2) if pair in slowest else SLOW

    links = tuple(replace(link, comm=comm(link.src, link.dst, link.comm)) for link in machine.links)
    return replace(machine, links=links)


def plan_with(problem: Problem, groups: tuple[int, ...]) -> Plan:
    return replace(batch_plan(problem, accelerators(problem)), islands=groups)


def copies(problem: Problem) -> list[str]:
    return [name for name in problem.graph.names if ".copy_island_" in name]


def test_pairs_and_the_quads_of_a_dgx_1_are_islands(problem: Problem) -> None:
    assert islands(problem) == PAIRS
    for preset, expected in (
        ("v100x8-nvlink", (0, 0, 0, 0, 1, 1, 1, 1)),
        ("v100x4-nvlink", ()),
        ("2x8-v100", ()),
        ("v100x2-nvlink", ()),
    ):
        assert islands(on_machine(problem, PRESETS[preset])) == expected
    assert islands(on_machine(problem, two_hosts())) == ()


def test_parts_on_the_fastest_devices_are_on_the_islands_of_these(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def split_batch(problem: Problem, *_: object) -> Plan:
        return batch_plan(problem, devices_of_equal_parts(problem))

    monkeypatch.setattr(intra_op, "layouts_plan", split_batch)
    given = PRESETS["v100x8-nvlink"]
    names = [device.name for device in given.devices if "GPU" in device.name]
    speed = dict(zip(names, (1.0, 3.0) * 4, strict=True))
    devices = [replace(each, speed=speed.get(each.name, 1.0)) for each in given.devices]
    uneven = on_machine(problem, replace(given, devices=tuple(devices)))
    assert uneven.parts is not None
    four = replace(uneven, parts=uneven.parts.limited(4))
    plan = run(four, intra_op.IntraOp(relays=True), Context()).solution.plan
    assert plan is not None
    assert plan.islands == (0, 0, 1, 1)


def test_a_share_of_the_variables_is_sent_to_each_island_once(problem: Problem) -> None:
    split = rewritten(problem, plan_with(problem, PAIRS))
    # Two of six variables of equal size, each with a copy for both islands.
    assert len(copies(split.problem)) == 2 * round(conversions.RELAYED_SHARE * LAYERS)
    assert not copies(rewritten(problem, plan_with(problem, ())).problem)


def test_copies_are_on_their_island_next_to_the_variable(problem: Problem) -> None:
    split = rewritten(problem, plan_with(problem, PAIRS))
    devices = accelerators(problem)
    solution = dealt(problem, split, Mesh((tuple(devices),)))
    assert violations(solution.problem, solution.schedule) == []
    graph, device = solution.problem.graph, solution.schedule.device
    island = dict(zip(devices, PAIRS, strict=True))
    for name in copies(solution.problem):
        op = graph.names.index(name)
        (source,) = device[graph.predecessors[op]].tolist()
        assert island[int(device[op])] == int(name.rpartition("_")[2])
        # The device of the same place in the other pair, which has the faster link.
        if island[source] != island[int(device[op])]:
            assert devices.index(int(device[op])) % 2 == devices.index(source) % 2


def test_a_step_with_islands_trains_as_before(meta: Any, problem: Problem) -> None:
    plan = plan_with(problem, PAIRS)
    check_equal(trained(meta), trained(split_graph(meta, plan)), 1e-5)


def test_parts_on_one_island_or_alone_on_each_need_no_copy(problem: Problem) -> None:
    two = batch_plan(problem, accelerators(problem)[:2])
    assert not copies(rewritten(problem, replace(two, islands=PAIRS)).problem)
    uneven = replace(two, islands=(0, 1))
    assert not copies(rewritten(problem, uneven).problem)  # one part on each island


def test_a_plan_is_stored_with_its_islands(problem: Problem) -> None:
    plan = plan_with(problem, PAIRS)
    stored = dict(plan_json(plan))
    assert plan_of(PlanSchema.model_validate(stored)) == plan
    for damaged, message in (
        ({"islands": [0, 1]}, "plan.islands has 2 entries; one for each of 4 parts"),
        ({"islands": [0, 0, 4, 4]}, "names island 4; numbers from 0 to 3"),
        ({"hosts": list(PAIRS)}, "hosts and islands"),
    ):
        with pytest.raises(BadInputError, match=message):
            plan_of(PlanSchema.model_validate(stored | damaged))


def test_relayed_variables_take_less_time_on_links(problem: Problem) -> None:
    mesh = Mesh((tuple(accelerators(problem)),))
    sent_us = []
    for groups in ((), PAIRS):
        split = rewritten(problem, plan_with(problem, groups))
        sent = dealt(problem, split, mesh).schedule.transfers
        took_us = sent.end_us - sent.start_us
        sent_us.append(float(np.sum(took_us)))
    assert sent_us[1] < sent_us[0]
