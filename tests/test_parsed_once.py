"""A graph is parsed once for what is read of it, and while it is, no full collection comes."""

import gc

import pytest
from test_apply_in_tensorflow import dealt
from training_graphs import convnet, exported, recurrent

from pesto_cli.apply import planned_changes, with_changes
from pesto_cli.data.machine import PRESETS
from pesto_cli.graphdef import wiring
from pesto_cli.graphdef.garbage import young_garbage_only
from pesto_cli.graphdef.nodes import node_table
from pesto_cli.graphdef.read import read_step
from pesto_cli.profile import profile

SERVER = PRESETS["v100x2-nvlink"]


@pytest.fixture
def parsed(monkeypatch):
    """The graphs that are parsed, as they are."""
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
    placement = dealt(read_step(meta))
    parsed.clear()
    with_changes(meta, planned_changes(meta, placement))
    assert len(parsed) == 1


def test_a_graph_without_calls_is_parsed_once_for_its_profile(parsed):
    profile(exported(convnet), SERVER)
    assert len(parsed) == 1


def full_collections(count):
    found = []

    def note(phase, info):
        if phase == "start" and info["generation"] == 2:
            found.append(info)

    gc.callbacks.append(note)
    try:
        kept = [[index] for index in range(count)]
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == count
    return len(found)


def test_no_full_collection_comes_while_a_graph_is_made():
    before = gc.get_threshold()
    gc.set_threshold(10, 2, 2)
    try:
        gc.freeze()
        gc.collect()  # so that what is new is more than a quarter of all
        assert full_collections(10_000) > 0
        with young_garbage_only():
            assert full_collections(10_000) == 0
        assert gc.get_threshold() == (10, 2, 2)
        with pytest.raises(KeyError), young_garbage_only():
            raise KeyError
        assert gc.get_threshold() == (10, 2, 2)
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
