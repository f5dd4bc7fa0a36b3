"""Cluster files: the addresses of TensorFlow servers that the user runs.

[cluster]                       # a tf.train.ClusterSpec: addresses by job
worker = ["10.0.0.1:2222", "10.0.0.2:2222"]

[hosts]                         # needed if addresses do not show which tasks share a host
left = ["worker:0"]
right = ["worker:1"]
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pesto_cli.cluster.names import LOCAL_JOB
from pesto_cli.errors import BadInputError, about
from pesto_cli.files.storage import Schema, read_toml, validate

EXAMPLE = 'worker = ["10.0.0.1:2222", "10.0.0.2:2222"]'


class _ClusterSchema(Schema):
    cluster: dict[str, list[str]]
    hosts: dict[str, list[str]] = {}


@dataclass(frozen=True)
class ClusterFile:
    """A parsed cluster file.

    jobs: job -> addresses of its tasks, as in a ClusterSpec. host_of: task (`worker:0`) -> host.
    """

    jobs: Mapping[str, tuple[str, ...]]
    host_of: Mapping[str, str]

    @property
    def address_of(self) -> dict[str, str]:
        """Task -> address; sessions go to the first task."""
        return {
            f"{job}:{task}": address
            for job, addresses in self.jobs.items()
            for task, address in enumerate(addresses)
        }


def is_cluster_file(spec: str) -> bool:
    """Whether a file is a cluster file: TOML with `[cluster]`; a machine file has `[[devices]]`."""
    try:
        return Path(spec).is_file() and "cluster" in read_toml(spec)
    except BadInputError:  # not TOML, so neither a cluster file nor a machine file
        return False


def read_cluster_file(path: Path | str) -> ClusterFile:
    """Read and validate a cluster file.

    Raises:
        BadInputError: it cannot be read, or its entries are wrong or contradict each other.
    """
    content = read_toml(path)
    with about(path):
        _check_jobs(content)
    parsed = validate(path, content, _ClusterSchema)
    with about(path):
        jobs = {job: tuple(addresses) for job, addresses in parsed.cluster.items()}
        tasks = ClusterFile(jobs, {}).address_of
        if not tasks:
            raise BadInputError("[cluster] has no task; an address such as host:2222 was expected.")
        for task, address in tasks.items():
            _check_address(task, address, list(tasks.values()))
        hosts = _given_hosts(parsed.hosts, list(tasks)) if parsed.hosts else {}
        return ClusterFile(jobs, hosts or {task: split(at)[0] for task, at in tasks.items()})


def split(address: str) -> tuple[str, int]:
    """Split an address into host and port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _check_jobs(content: Mapping[str, Any]) -> None:
    if "cluster" not in content:
        found = (
            "it describes devices, like a machine file, and names no servers"
            if "devices" in content
            else f"it has {', '.join(content) or 'nothing'}"
        )
        raise BadInputError(
            f"there is no [cluster] in the file ({found}); a cluster file was expected, with the "
            f"addresses of TensorFlow servers: [cluster] {EXAMPLE}."
        )
    jobs = content["cluster"]
    if isinstance(jobs, dict) and LOCAL_JOB in jobs:
        raise BadInputError(
            f"[cluster] has a job {LOCAL_JOB!r}, which is TensorFlow's name for the devices of its "
            f"own process; another name was expected, as in {EXAMPLE}."
        )
    for job, addresses in jobs.items() if isinstance(jobs, dict) else [("", jobs)]:
        if not isinstance(addresses, list) or not all(isinstance(at, str) for at in addresses):
            where = f"[cluster] {job}".rstrip()
            raise BadInputError(
                f"{where} is {str(addresses)[:60]!r}; a job with a list of addresses was "
                f"expected, as in {EXAMPLE}."
            )


def _check_address(task: str, address: str, all_addresses: list[str]) -> None:
    host, _, port = address.rpartition(":")
    if not host or not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 2**16:
        raise BadInputError(f"{task} is at {address!r}; HOST:PORT was expected, as in host:2222.")
    if all_addresses.count(address) > 1:
        raise BadInputError(f"two tasks are at {address}; give each task a port of its own.")


def _given_hosts(hosts: Mapping[str, list[str]], tasks: list[str]) -> dict[str, str]:
    host_of: dict[str, str] = {}
    for host, names in hosts.items():
        for task in names:
            if task not in tasks:
                raise BadInputError(
                    f"[hosts] {host} names {task!r}; one of {', '.join(tasks)} was expected."
                )
            if task in host_of:
                raise BadInputError(
                    f"[hosts] has {task} on {host_of[task]} and on {host}; name it once."
                )
            host_of[task] = host
    if missing := [task for task in tasks if task not in host_of]:
        raise BadInputError(f"[hosts] lacks {', '.join(missing)}; name all tasks, or no hosts.")
    return host_of
