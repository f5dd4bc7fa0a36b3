"""The evaluation of Spotlight (Gao et al., ICML '18).

Each experiment is one file, and one line here.
"""

from pesto_cli.bench.experiment import Paper
from pesto_cli.bench.spotlight.curves import FIGURE4
from pesto_cli.bench.spotlight.profiles import FIGURE6
from pesto_cli.bench.spotlight.runs import SERVER
from pesto_cli.bench.spotlight.step_times import TABLE1
from pesto_cli.bench.spotlight.training import FIGURE5

SPOTLIGHT = Paper(
    title="Spotlight (ICML '18)",
    machine=SERVER,
    parts=(2, 4),
    costs="The cost models differ: the paper ran TensorFlow 1 on K80 GPUs, ten steps for each of "
    "20,000 placements; here op times are analytic costs of a K80, links are fits of PCIe, steps "
    "are simulated, and policies learn for the time limit only. Compare ratios and rankings, not "
    "seconds.",
    experiments={"table1": TABLE1, "fig4": FIGURE4, "fig5": FIGURE5, "fig6": FIGURE6},
)
