"""All checks of an installation, in the order in which they are shown."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pesto_cli.doctor import probes, system
from pesto_cli.doctor.check import Finding, Outcome, Probe
from pesto_cli.doctor.child_process import run_in_child
from pesto_cli.errors import EnvironmentFailedError
from pesto_cli.plugins import PlugIn, plug_ins

# Distributions that every command needs, and those that only charts need.
NEEDED = ("numpy", "numba", "scipy", "networkx", "pydantic", "pymetis", "click", "rich")
OPTIONAL = ("altair", "vl-convert-python")


def checks() -> list[Finding]:
    """Run all checks, which takes some seconds.

    A check that loads a library runs in a child process, because the library may crash or may not
    share a process with another one. The checks run concurrently.
    """
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda probe: probe(), _probes()))


def _probes() -> Iterator[Probe]:
    needed, optional = Outcome.FAIL, Outcome.WARN
    yield Probe("pesto", partial(system.version, "pesto-cli"), needed, "pip install pesto-cli")
    yield Probe("Python", system.python, optional, "use Python 3.11 or 3.12")
    for name in NEEDED:
        yield Probe(name, partial(system.version, name), needed, f"pip install {name}")
    for name in OPTIONAL:
        yield Probe(
            name, partial(system.version, name), optional, f"pip install {name}: for charts"
        )
    yield Probe("cores", system.cores, optional, "give pesto two cores or more")
    yield Probe("memory", system.memory, optional, "give pesto 4 GiB or more, for large graphs")
    yield Probe(
        "TensorFlow",
        partial(run_in_child, probes.tensorflow_devices),
        needed,
        "pip install 'tensorflow>=2.21,<2.22': export, profile, apply and run need it",
    )
    yield Probe(
        "splitting",
        partial(run_in_child, probes.split_product),
        optional,
        "use --max-parts 1, which keeps all ops whole, and report it with TensorFlow's version",
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
        "set NUMBA_CACHE_DIR to a writable folder",
    )
    yield Probe(
        "isolated workers",
        partial(run_in_child, probes.isolated),
        optional,
        "allow network namespaces, or use --open-ports: only local-workers need them",
    )
    yield from plug_in_probes()


def plug_in_probes() -> Iterator[Probe]:
    """Yield a check for each installed plug-in: whether it can be used."""
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
