"""Strategies. Each has a file, and a line in `STRATEGIES`."""

from pesto_cli.learned.heterog import HeteroG
from pesto_cli.learned.reinforce import Reinforce
from pesto_cli.learned.spotlight import Spotlight
from pesto_cli.plugins import Registry, called_with
from pesto_cli.strategies.baechi import MEtf, MSct, MTopo
from pesto_cli.strategies.context import Context, Strategy
from pesto_cli.strategies.data_parallel import CpAr, CpPs, DataParallel, EvAr, EvPs
from pesto_cli.strategies.dpos import FastT
from pesto_cli.strategies.expert import Expert
from pesto_cli.strategies.heft import Heft
from pesto_cli.strategies.horovod import Horovod
from pesto_cli.strategies.intra_op import IntraOp
from pesto_cli.strategies.metis import Metis
from pesto_cli.strategies.os_dpos import OsDpos
from pesto_cli.strategies.pesto import Pesto
from pesto_cli.strategies.pipeline import Pipeline
from pesto_cli.strategies.random import Random
from pesto_cli.strategies.round_robin import RoundRobin
from pesto_cli.strategies.single import Single
from pesto_cli.strategies.tensor_parallel import TensorParallel

STRATEGIES: Registry[Strategy] = Registry(
    "pesto.strategies",
    {
        "single": Single(),
        "round-robin": RoundRobin(),
        "expert": Expert(),
        "m-topo": MTopo(),
        "m-etf": MEtf(),
        "m-sct": MSct(),
        "heft": Heft(),
        "fastt": FastT(),
        "metis": Metis(),
        "random": Random(),
        "data-parallel": DataParallel(),
        "tensor-parallel": TensorParallel(),
        "pipeline": Pipeline(),
        "intra-op": IntraOp(),
        "os-dpos": OsDpos(),
        "horovod": Horovod(),
        "ev-ps": EvPs(),
        "ev-ar": EvAr(),
        "cp-ps": CpPs(),
        "cp-ar": CpAr(),
        "spotlight": Spotlight(),
        "grl": Reinforce(),
        "heterog": HeteroG(),
        "pesto": Pesto(),
    },
    called_with("problem", "context"),
)

__all__ = ["STRATEGIES", "Context", "Strategy"]
