"""The knobs of Baechi's program, and the combinations of them that are known by name.

A knob is an option of the program (github.com/beomyeol/baechi: `train.py`, `placer/`), which its
line names; the two that are not say so. `RECIPE` is the README's example, `--only_forward
--colocate_grads_with_ops --placer_type=fusion --grouper=coplace` with all else by default, and what
m-ETF and m-SCT use here. m-TOPO uses `TOPO_RECIPE`: with that of the README it puts all variables
on the first device and the ops that read them on the second.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Settings:
    """How the graph is prepared, and by which model of links and memory it is placed.

    gradients: `follow`: forward ops alone are placed, and what computes gradients and updates goes
        with the op that it belongs to (`--only_forward --colocate_grads_with_ops`); `colocated`:
        both are placed, as one group (`--colocate_grads_with_ops`); `free`: each on its own.
    co_placement: an op with one consumer shares that one's device (`--grouper=coplace` or `tf`).
    fusion: neighbours that share a device are placed as one op (`--placer_type=fusion`).
    reads_per_use: not an option. Co-placement takes a read of a variable for as many reads as have
        one consumer each, as a program has them that reads the variable at every use. A layer's
        steps then stay together.
    late_sources: not an option. In the topological order, what waits for nothing (variables,
        constants) and reads of variables come just before their first use; else before all.
    signals_cost_transfers: a control edge costs what a tensor of 4 bytes does, and data in host
        memory what its size says, as in the program; else both cost the machine's signal.
    reserve_memory: a group that is placed takes the memory it will need at once, and not only that
        of its ops as they run (`m_etf_reserve`, `m_sct_reserve`).
    uniform: m-TOPO fills devices up to an equal share; else up to their memory
        (`m_topo_nonuniform`).
    memory_fraction: the share of memory that the placer may plan with (`--placer_memory_fraction`).
    comm_factor: factor of all transfer times (`--comm_cost_factor`).
    favourite_threshold: a child is a favourite if its variable of the linear program is below it
        (`--sct_threshold`).
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

# Twelve, for a best of all: for each of the three placers, the best settings of the paper's models
# are among them or close to one. Memory is left to the retries of `answer.py`.
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
