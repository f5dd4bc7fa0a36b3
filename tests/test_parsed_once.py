"""A graph is parsed only once, for everything that is read from it."""

import pytest
from test_apply_in_tensorflow import round_robin_placement
from training_graphs import convnet, exported, recurrent

from pesto_cli.apply import planned_changes, with_changes
from pesto_cli.data.presets import PRESETS
from pesto_cli.graphdef import wiring
from pesto_cli.graphdef.nodes import node_table
from pesto_cli.graphdef.read import read_step
from pesto_cli.profile import profile

SERVER = PRESETS["v100x2-nvlink"]


@pytest.fixture
def parsed(monkeypatch):
    """The list of graphs that have been parsed."""
    graphs = []

    def counted(graph_def):
        graphs.append(graph_def)
        return node_table(graph_def)

    monkeypatch.setattr(wiring, "node_table", counted)
    monkeypatch.setattr("pesto_cli.graphdef.nodes.node_table", counted)
    return graphs


@pytest.mark.parametrize("build", [convnet, recurrent])
def test_a_graph_that_is_placed_is_parsed_once(parsed, build):
    meta = exported(build)
    placement = round_robin_placement(read_step(meta))
    parsed.clear()
    with_changes(meta, planned_changes(meta, placement))
    assert len(parsed) == 1


def test_a_graph_without_calls_is_parsed_once_for_its_profile(parsed):
    profile(exported(convnet), SERVER)
    assert len(parsed) == 1
