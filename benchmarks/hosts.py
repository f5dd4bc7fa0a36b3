"""Several hosts on this one: `python -m benchmarks.hosts [OPTIONS] -- COMMAND...`.

Each host is a network namespace with an address of its own (10.77.0.1, 10.77.0.2, ...), joined by a
bridge. Each network card sends at a limited rate (tc, token bucket). `pesto worker` runs the tasks,
and COMMAND runs on the first host, with the cluster file in its argument `CLUSTER`. All of it ends
with COMMAND. This needs root, `ip` and `tc`.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BRIDGE, PORT = "pesto-bridge", 2300
CLUSTER = "CLUSTER"
PESTO = [sys.executable, "-c", "from pesto_cli.cli import main; main()"]


@dataclass(frozen=True)
class Hosts:
    """Which hosts to stand in for.

    mbit: rate of each network card in Mbit/s, one for each host. tasks: number of tasks on each.
    reversed_: whether the cluster file lists the last host first.
    """

    mbit: Sequence[float]
    tasks: int = 1
    reversed_: bool = False

    @property
    def order(self) -> list[int]:
        """The hosts in the order of the cluster file."""
        numbers = list(range(len(self.mbit)))
        return numbers[::-1] if self.reversed_ else numbers

    @property
    def cluster_file(self) -> str:
        """The content of the cluster file."""
        addresses = [
            f'"10.77.0.{host + 1}:{PORT + task}"'
            for host in self.order
            for task in range(self.tasks)
        ]
        return f"[cluster]\nworker = [{', '.join(addresses)}]\n"


def run(*command: str) -> None:
    """Run a command of the system that has to succeed."""
    subprocess.run(command, check=True)


@contextmanager
def network(hosts: Hosts) -> Iterator[None]:
    """Create a namespace for each host and join them; remove all when the context ends."""
    with ExitStack() as created:
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        created.callback(run, "ip", "link", "del", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        for host, mbit in enumerate(hosts.mbit):
            name, outside = namespace(host), f"pesto-out-{host}"
            run("ip", "netns", "add", name)
            created.callback(run, "ip", "netns", "del", name)
            run(*f"ip link add {outside} type veth peer name card netns {name}".split())
            run(*f"ip link set {outside} master {BRIDGE} up".split())
            on_host(host, *f"ip addr add 10.77.0.{host + 1}/24 dev card".split())
            on_host(host, *["ip", "link", "set", "card", "up"])
            on_host(host, *["ip", "link", "set", "lo", "up"])
            limit = f"tc qdisc add dev card root tbf rate {mbit}mbit burst 256kb latency 500ms"
            on_host(host, *limit.split())
        yield


def namespace(host: int) -> str:
    """Return the name of the namespace of a host."""
    return f"pesto-host-{host}"


def on_host(host: int, *command: str) -> None:
    """Run a command on a host."""
    run("ip", "netns", "exec", namespace(host), *command)


@contextmanager
def workers(hosts: Hosts, cluster: Path, slow: int | None) -> Iterator[list[subprocess.Popen[str]]]:
    """Run all tasks on their hosts, which share all cores; slow: a task with half of its time."""
    with ExitStack() as started:
        tasks = []
        for task, host in enumerate([host for host in hosts.order for _ in range(hosts.tasks)]):
            command = ["ip", "netns", "exec", namespace(host), *PESTO, "worker", str(cluster)]
            process = subprocess.Popen([*command, "--task", str(task)], text=True)
            started.callback(process.wait)
            started.callback(process.kill)
            tasks.append(process)
        if slow is not None:
            started.callback(_halved(tasks[slow]).kill)
        yield tasks


def _halved(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """Stop and continue a process every 10 ms."""
    pid = process.pid
    loop = f"while kill -STOP {pid} && sleep 0.01; do kill -CONT {pid}; sleep 0.01; done"
    return subprocess.Popen(["bash", "-c", loop], text=True)


def kill_during(
    command: subprocess.Popen[Any], task: subprocess.Popen[Any], seconds: float
) -> None:
    """Kill a task after some seconds, unless the command has ended before."""
    try:
        command.wait(seconds)
    except subprocess.TimeoutExpired:
        task.kill()


def main() -> int:
    """Run a command on the first of several hosts; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mbit", default="200,200", help="rate of the card of each host")
    parser.add_argument("--tasks", type=int, default=1, help="number of tasks on each host")
    parser.add_argument("--reversed", action="store_true", help="list the last host first")
    parser.add_argument("--slow", type=int, metavar="TASK", help="halve the time of a task")
    parser.add_argument("--kill", nargs=2, type=int, metavar=("TASK", "SECONDS"))
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the network is removed
    hosts = Hosts(list(map(float, options.mbit.split(","))), options.tasks, options.reversed)
    with tempfile.TemporaryDirectory() as folder, network(hosts):
        cluster = Path(folder) / "cluster.toml"
        cluster.write_text(hosts.cluster_file)
        with workers(hosts, cluster, options.slow) as tasks:
            words = [str(cluster) if word == CLUSTER else word for word in options.command]
            first = hosts.order[0]
            done = subprocess.Popen(["ip", "netns", "exec", namespace(first), *words])
            if options.kill is not None:
                task, seconds = options.kill
                kill_during(done, tasks[task], seconds)
            return done.wait()


if __name__ == "__main__":
    sys.exit(main())
