"""The settings of Baechi's program, and combinations of settings by name.

Each setting is an option of the program (github.com/beomyeol/baechi: `train.py`, `placer/`), which
is named in parentheses, with two exceptions. `RECIPE` is the example of the README:
`--only_forward --colocate_grads_with_ops --placer_type=fusion --grouper=coplace`, and defaults for
all other options. m-ETF and m-SCT use it here. m-TOPO uses `TOPO_RECIPE`. With `RECIPE`, m-TOPO
puts all variables on the first device and the ops that read them on the second.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Settings:
    """Settings of graph preparation, and of the model of links and memory.

    gradients: `follow`: only forward ops are placed; gradients and updates get the device of their
        forward op (`--only_forward --colocate_grads_with_ops`). `colocated`: all ops are placed,
        and a forward op and its gradients are one group (`--colocate_grads_with_ops`). `free`: all
        ops are placed, without such groups.
    co_placement: an op with one consumer is on the consumer's device (`--grouper=coplace` or `tf`).
    fusion: adjacent ops on one device are placed as one op (`--placer_type=fusion`).
    reads_per_use: not an option. Co-placement treats a read of a variable as several reads with one
        consumer each, as in programs that read the variable for each use. Then the time steps of a
        layer stay together.
    late_sources: not an option. If true, ops without predecessors (variables, constants) and reads
        of variables are just before their first use in the topological order; else before all.
    signals_cost_transfers: if true, a control edge costs as much as a tensor of 4 bytes, and data
        in host memory costs a transfer of its size, as in the program; else both cost a signal.
    reserve_memory: a placed group takes all its memory at once, instead of the memory of each op
        when it runs (`m_etf_reserve`, `m_sct_reserve`).
    uniform: m-TOPO fills devices up to an equal share; else up to their memory
        (`m_topo_nonuniform`).
    memory_fraction: share of memory that the placer may use (`--placer_memory_fraction`).
    comm_factor: factor of all transfer times (`--comm_cost_factor`).
    favourite_threshold: a child is a favourite child if its variable of the linear program is below
        this value (`--sct_threshold`).
    """

    gradients: Literal["follow", "colocated", "free"] = "follow"
    co_placement: bool = True
    reads_per_use: bool = False
    late_sources: bool = False
    fusion: bool = True
    signals_cost_transfers: bool = True
    reserve_memory: bool = False
    uniform: bool = True
    memory_fraction: float = 1.0
    comm_factor: float = 1.0
    favourite_threshold: float = 0.1


RECIPE = Settings()
TOPO_RECIPE = Settings(reads_per_use=True, late_sources=True)

# Twelve combinations, to report the best of all. For each of the three placers, the best settings
# on the paper's models are one of these or close to one. `retries.py` varies the memory settings.
SETTINGS: Mapping[str, Settings] = {
    "recipe": RECIPE,
    "late-sources": Settings(late_sources=True),
    "reads-per-use": Settings(reads_per_use=True),
    "reads-per-use-late-sources": TOPO_RECIPE,
    "groups-only": Settings(co_placement=False),
    "unfused": Settings(co_placement=False, fusion=False),
    "colocated-groups-only": Settings(gradients="colocated", co_placement=False),
    "colocated-unfused": Settings(gradients="colocated", co_placement=False, fusion=False),
    "free": Settings(gradients="free"),
    "free-late-sources": Settings(gradients="free", late_sources=True),
    "free-groups-only": Settings(gradients="free", co_placement=False),
    "free-groups-only-late-sources": Settings(
        gradients="free", co_placement=False, late_sources=True
    ),
}
