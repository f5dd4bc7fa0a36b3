"""How often Python collects garbage."""

import gc

NEW_OBJECTS_PER_COLLECTION = 100_000


def collect_rarely() -> None:
    """Let Python search for cycles of garbage after every 100,000 new objects, not 700.

    Graphs consist of millions of small objects that stay until the end. Searching them takes a
    tenth of the time of most commands, and a third of the time in which a plan is applied.
    """
    gc.set_threshold(NEW_OBJECTS_PER_COLLECTION)
