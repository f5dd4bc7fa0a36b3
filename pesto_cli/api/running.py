"""Running steps on real devices."""

from collections.abc import Sequence
from typing import Any

from pesto_cli.cluster import Cluster
from pesto_cli.files import PlacementFile
from pesto_cli.runtime.comparison import RealRun, compared
from pesto_cli.runtime.interleaved import Turns


def run_steps(
    meta: Any,
    cluster: Cluster,
    placements: Sequence[PlacementFile | None],
    *,
    steps: int = 50,
    warm_up: int = 5,
    feeds: str | None = None,
) -> list[RealRun]:
    """Run steps of a graph with each placement (None: unchanged), alternately.

    See `runtime.comparison`. `with pesto.connected("local-workers:2") as cluster:` provides the
    devices.
    """
    return compared(meta, cluster, placements, Turns(steps, warm_up), feeds)
