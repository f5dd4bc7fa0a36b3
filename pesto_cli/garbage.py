"""How often Python collects garbage."""

import gc

NEW_OBJECTS_PER_COLLECTION = 100_000


def collect_rarely() -> None:
    """Let Python search for cycles of garbage after every 100,000 new objects, not 700.

    A graph has millions of small objects, which live until the command ends. To search them takes
    a tenth of the time of `export` and `profile`, and a third of the time to split a graph.
    """
    gc.set_threshold(NEW_OBJECTS_PER_COLLECTION)
