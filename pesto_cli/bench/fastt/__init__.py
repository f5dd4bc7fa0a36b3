"""The evaluation of FastT (Yi et al., Middleware '20): one file and one line each."""

from pesto_cli.bench.experiment import Paper
from pesto_cli.bench.fastt.large_batches import TABLE3
from pesto_cli.bench.fastt.order import FIGURE2
from pesto_cli.bench.fastt.rows import SERVER
from pesto_cli.bench.fastt.scaling import TABLE1, TABLE2
from pesto_cli.bench.fastt.seconds import TABLE4
from pesto_cli.bench.fastt.splits import TABLE5, TABLE6

FASTT = Paper(
    title="FastT (Middleware '20)",
    machine=SERVER,
    parts=(2, 4, 8, 16, 32),
    costs="The cost models differ: the paper measured TensorFlow 1.14 on V100 GPUs; here op times "
    "are analytic costs of a V100, links are published fits, and steps are simulated. Compare "
    "speed-ups and rankings, not speeds.",
    experiments={
        "table1": TABLE1,
        "table2": TABLE2,
        "table3": TABLE3,
        "table4": TABLE4,
        "table5": TABLE5,
        "table6": TABLE6,
        "fig2": FIGURE2,
    },
    has_own_batches=True,
)
