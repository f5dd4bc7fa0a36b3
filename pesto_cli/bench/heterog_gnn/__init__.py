"""The evaluation of HeteroG's policy (Yi et al., CoNEXT '20).

Each experiment is one file, and one line here.
"""

from pesto_cli.bench.experiment import Paper
from pesto_cli.bench.heterog import HETEROG
from pesto_cli.bench.heterog_gnn.fine_tuning import TABLE6
from pesto_cli.bench.heterog_gnn.step_times import TABLE1
from pesto_cli.bench.heterog_gnn.unseen import UNSEEN

HETEROG_GNN = Paper(
    title="HeteroG's policy (CoNEXT '20)",
    machine=HETEROG.machine,
    parts=HETEROG.parts,
    costs=f"{HETEROG.costs} The paper's policy learned for about four hours on two V100 GPUs, with "
    "2,000 groups of ops and 12 layers; here it has 100 groups and 2 layers, and learns for the "
    "time limit only, on CPUs.",
    experiments={"table1": TABLE1, "table6": TABLE6, "unseen": UNSEEN},
)
