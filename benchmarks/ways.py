"""The starts of the search that splits ops: `python -m benchmarks.ways [MODEL [MACHINE]]`.

The table has the step time of each way to split the step, as it is constructed, without a search.
Two ways split some ops of a placement of whole ops. This placement is the result of a search of
four units of work, as it is in a search of 40 units. GPUs have 80 GB.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.quality import profile_of
from benchmarks.scaling import PARTS, on_large_gpus
from pesto_cli.data.limits import Limits
from pesto_cli.data.presets import PRESETS
from pesto_cli.errors import PestoError
from pesto_cli.report.markdown import markdown_table
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.pesto import Pesto
from pesto_cli.strategies.split_search.forms import beside_whole, every_way
from pesto_cli.strategies.split_search.ways import AsStrategy, OnMeshes, Way

WHOLE_UNITS = 4.0


def main(arguments: Sequence[str] = ()) -> None:
    """Construct all schedules of a model, and print a row for each."""
    defaults = ("Transformer-10-8-1024", "2x4-v100")
    model, machine = (*arguments, *defaults[len(arguments) :])
    profile = profile_of(Path("build/profiles"), model, parts=PARTS)
    problem = on_large_gpus(profile, PRESETS[machine]).problem
    rows = []
    context = Context(Limits(WHOLE_UNITS, deterministic=True))
    placed = Pesto().place(replace(problem, parts=None), context)
    whole = replace(placed, asked=problem, problem=problem)
    rows.append(["whole ops", "", "", f"{whole.makespan_us / 1e3:.1f}", f"{problem.num_ops:,}", ""])
    for way in (*every_way(problem, Pesto()), *beside_whole(whole)):
        by_group = way.hosts if isinstance(way, OnMeshes) else _is_by_host(way)
        sums = "once a group" if by_group else ""
        meshes = ", ".join(map(str, way.meshes)) if isinstance(way, OnMeshes) else ""
        began = time.perf_counter()
        try:
            best, solution = way(problem, Context())
            found = [best, f"{solution.makespan_us / 1e3:.1f}", f"{solution.problem.num_ops:,}"]
        except PestoError as error:
            found = [str(error), "", ""]
        rows.append([meshes or found[0], sums, *found, f"{time.perf_counter() - began:.1f}"])
    print(f"{model} on {machine}\n")
    print(markdown_table(["way", "sums", "best", "step ms", "ops", "s"], rows, num_text=3))


def _is_by_host(way: Way) -> bool:
    return isinstance(way, AsStrategy) and getattr(way.strategy, "by_host", False)


if __name__ == "__main__":
    main(sys.argv[1:])
