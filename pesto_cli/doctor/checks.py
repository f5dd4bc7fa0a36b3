"""All checks, in the order in which they are shown."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pesto_cli.doctor import probes, system
from pesto_cli.doctor.check import Finding, Outcome, Probe
from pesto_cli.doctor.child_process import run_in_child
from pesto_cli.errors import EnvironmentFailedError
from pesto_cli.plugins import PlugIn, plug_ins

# The distributions that pesto's own commands import; those of reports and notebooks are not among
# them.
NEEDED = ("numpy", "numba", "scipy", "networkx", "pydantic", "pymetis", "click", "rich")
OPTIONAL = ("altair", "vl-convert-python")


def checks() -> list[Finding]:
    """Look at everything, which takes some seconds.

    What loads a library that may crash, or that cannot share a process with another, is looked at
    in a process of its own; these run beside each other.
    """
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda probe: probe(), _probes()))


def _probes() -> Iterator[Probe]:
    """Yield them."""
    needed, optional = Outcome.FAIL, Outcome.WARN
    yield Probe("pesto", partial(system.version, "pesto-cli"), needed, "pip install pesto-cli")
    yield Probe("Python", system.python, optional, "use Python 3.11 or 3.12")
    for name in NEEDED:
        yield Probe(name, partial(system.version, name), needed, f"pip install {name}")
    for name in OPTIONAL:
        yield Probe(
            name, partial(system.version, name), optional, f"pip install {name}: for charts"
        )
    yield Probe("cores", system.cores, optional, "give pesto two or more")
    yield Probe("memory", system.memory, optional, "give it 4 GiB or more; large graphs need them")
    yield Probe(
        "TensorFlow",
        partial(run_in_child, probes.tensorflow_devices),
        needed,
        "pip install 'tensorflow>=2.21,<2.22': export, profile, apply and run need it",
    )
    yield Probe(
        "solver cpsat",
        partial(run_in_child, probes.solved, "cpsat"),
        needed,
        "pip install 'ortools>=9.15,<9.16', or use --solver cbc",
    )
    yield Probe(
        "solver cbc",
        partial(run_in_child, probes.solved, "cbc"),
        optional,
        "pip install --force-reinstall 'pulp>=3.3,<4': only --solver cbc needs it",
    )
    yield Probe(
        "solver highs",
        partial(run_in_child, probes.solved, "highs"),
        optional,
        "pip install 'highspy>=1.12,<1.15': only --solver highs needs it",
    )
    yield Probe(
        "kernel cache",
        partial(run_in_child, probes.kernel_cache),
        needed,
        "set NUMBA_CACHE_DIR to a folder that can be written to",
    )
    yield Probe(
        "isolated workers",
        partial(run_in_child, probes.isolated),
        optional,
        "allow namespaces as told, or use --open-ports: only local-workers need them",
    )
    yield from plug_in_probes()


def plug_in_probes() -> Iterator[Probe]:
    """Whether the plug-ins that are installed can be used."""
    for plug_in in plug_ins():
        package = plug_in.package.rpartition(" ")[0]
        yield Probe(
            f"{plug_in.what} {plug_in.name}",
            partial(_used, plug_in),
            Outcome.WARN,
            f"update {package}, or pip uninstall {package}",
        )


def _used(plug_in: PlugIn) -> str:
    if plug_in.trouble:
        raise EnvironmentFailedError(f"{plug_in.package}: {plug_in.trouble}")
    return run_in_child(probes.plug_in, plug_in.group, plug_in.name, plug_in.package)
