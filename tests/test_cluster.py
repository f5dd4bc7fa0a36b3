"""Clusters of real devices: local workers, clusters of servers, and how their processes end."""

import ctypes
import io
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from test_progress import HIDE_CURSOR, SHOW_CURSOR, run_in_terminal

from pesto_cli import api
from pesto_cli.apply import session_config
from pesto_cli.cluster import (
    Cluster,
    Connection,
    connected,
    discovery,
    is_live,
    isolation,
    local_workers,
    serve,
)
from pesto_cli.cluster.backend import Opened
from pesto_cli.cluster.client_process import ClientProcess
from pesto_cli.cluster.cluster_file import read_cluster_file
from pesto_cli.cluster.hang_watch import ANSWER_S, NUM_SILENT, PERIOD_S, silent_tasks
from pesto_cli.cluster.hardware import memory_bytes
from pesto_cli.cluster.links import LOOPBACK, NETWORK, Location, nominal_links
from pesto_cli.cluster.local_workers import LocalWorkers, client_core
from pesto_cli.cluster.names import pesto_name, tensorflow_name
from pesto_cli.cluster.time_slices import (
    ATTRIBUTES,
    SET_ATTRIBUTES,
    SLICE_NS,
    shorten_time_slices,
)
from pesto_cli.cluster.workers import free_ports
from pesto_cli.data.machine import CommModel, Device
from pesto_cli.errors import BadInputError, EnvironmentFailedError, InfeasibleError
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.comm import fit_overhead
from pesto_cli.profile.comm.chains import Chains, Effort, Hop
from pesto_cli.profile.comm.overhead import TransferOverheads, transfer_overheads
from pesto_cli.profile.comm.transfers import LinkTimes, TimedTransfers, timed_transfers
from pesto_cli.profile.comm.waiting import wait_us
from pesto_cli.profile.traces.received import ReceivedLabel
from pesto_cli.runtime.comparison import device_names

MARK = "PESTO_TEST_MARK"


# Functions that run in the client process.


def doubled(connection: Connection, value: int) -> int:
    print("said by a call")
    os.write(1, b"written by a call\n")
    return 2 * value


def infeasible(connection: Connection) -> None:
    raise InfeasibleError("it does not fit; take a smaller one.")


def broken(connection: Connection) -> None:
    raise ValueError("a bug")


def unpicklable(connection: Connection) -> Any:
    return lambda: None


def device_of_each(connection: Connection) -> dict[str, str]:
    """Return pesto's name of each device -> the device that ran an op placed there."""
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default() as graph:
        for name, device in connection.device_names.items():
            with tf1.device(device):
                tf1.random.uniform([2], name=name.replace(":", "_").replace("/", "_"))
    metadata = tf1.RunMetadata()
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    fetches = [op for op in graph.get_operations() if op.type == "RandomUniform"]
    with connection.session(graph, session_config()) as session:
        session.run(fetches, options=options, run_metadata=metadata)
    ran = {
        node.node_name: device.device
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
    }
    names = [name.replace(":", "_").replace("/", "_") for name in connection.device_names]
    return {
        device: ran[f"{name}/RandomUniform"]
        for device, name in zip(connection.device_names, names, strict=True)
    }


def read_after_assignments(connection: Connection, num: int) -> list[float]:
    """Assign 1 to `num` variables of the last device; return what a function reads after each.

    It takes some time to compute the 1. The function also uses the first device, so TensorFlow
    sends it to the last device in another request than the assignment.
    """
    connection.connect_eagerly()
    tf = tensorflow()
    first, *_, last = connection.device_names.values()
    with tf.device(last):
        variables = [tf.Variable(0.0) for _ in range(num)]

    @tf.function
    def values() -> Any:
        with tf.device(last):
            read = [variable.read_value() for variable in variables]
        with tf.device(first):
            return [tf.identity(value) for value in read]

    values()
    found = []
    for index, variable in enumerate(variables):
        size = 500 + index
        with tf.device(last):
            ones = tf.ones([size, size])
            variable.assign((ones @ ones)[0, 0] / size)
        found.append(float(values()[index]))
    return found


def cores_of_all(connection: Connection) -> tuple[set[int], list[set[int]]]:
    """Return the cores of the client, and for each worker the cores of all its threads."""
    return os.sched_getaffinity(0), [
        {core for task in tasks for core in os.sched_getaffinity(task)}
        for tasks in threads_of_workers()
    ]


def threads_of_workers() -> list[list[int]]:
    """Return the thread ids of each worker; runs in the client process."""
    workers = Path("/proc/self/task", str(os.getpid()), "children").read_text().split()
    return [list(map(int, os.listdir(f"/proc/{pid}/task"))) for pid in workers]


def slices_of_workers(connection: Connection) -> set[int]:
    """Return the time slices in ns of all threads of all workers, by sched_getattr(2)."""
    return {slice_ns(task) for tasks in threads_of_workers() for task in tasks}


def slice_ns(task: int) -> int:
    """Return the time slice of a thread; 0 if the kernel has none for single threads."""
    number = {"x86_64": 315, "aarch64": 275}[platform.machine()]
    found = ctypes.create_string_buffer(ATTRIBUTES.size)
    assert ctypes.CDLL(None).syscall(number, task, found, ATTRIBUTES.size, 0) == 0
    return int(ATTRIBUTES.unpack(found.raw)[5])


def reach(connection: Connection, port: int) -> list[str]:
    """Connect to a port; return the names of the network interfaces."""
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    return [name for _, name in socket.if_nameindex()]


def run_for_long(connection: Connection) -> None:
    """Keep all devices busy for much longer than any test takes."""
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default() as graph:
        ends = []
        for device in connection.device_names.values():
            with tf1.device(device):
                ends.append(
                    tf1.while_loop(lambda i: i < 10**9, lambda i: i + 1, [tf1.constant(0)]).op
                )
    print("busy", flush=True)
    with connection.session(graph, session_config()) as session:
        session.run(ends)


def die(connection: Connection) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# Processes.


def marked(mark: str) -> list[int]:
    """Return all processes except this one that inherited a mark from a test."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"{MARK}={mark}".encode() in environ.split(b"\0"):
                found.append(int(entry.name))
    return found


def gone(mark: str, within_s: float = 20.0) -> bool:
    """Whether all processes with a mark end within a time limit."""
    until = time.monotonic() + within_s
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.05)
    return not marked(mark)


def workers_of(mark: str) -> list[int]:
    """Return the worker processes: marked children of a marked process."""
    parents = {
        pid: int(Path(f"/proc/{pid}/stat").read_text().split(") ")[1].split()[1])
        for pid in marked(mark)
    }
    return [pid for pid, parent in parents.items() if parent in parents]


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Mark all processes that a test starts; afterwards kill those left, and fail if any was."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    yield mark
    left = marked(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def kill_soon(pid: int) -> None:
    """Kill a process during the next call."""
    threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()


@pytest.fixture(scope="module")
def open_ports() -> bool:
    """Whether this system allows no network namespace, so that tests need open ports."""
    return run_in_namespace().returncode != 0


def run_in_namespace(first: str = "pass") -> subprocess.CompletedProcess[str]:
    """Run a process that enters a network namespace after the code `first`.

    It prints its user id and its network interfaces.
    """
    probe = (
        "import os, socket; from pesto_cli.cluster.isolation import leave_network; "
        f"{first}; leave_network(); print(os.getuid(), *dict(socket.if_nameindex()).values())"
    )
    return subprocess.run(
        [sys.executable, "-c", probe],
        capture_output=True,
        text=True,
        env={**os.environ, **LocalWorkers(1).environ},
    )


@pytest.fixture(scope="module")
def workers(open_ports: bool) -> Iterator[Cluster]:
    with connected("local-workers:2", open_ports=open_ports) as cluster:
        yield cluster


# Workers on this host.


def test_workers_are_devices_with_equal_shares_of_the_memory(workers: Cluster) -> None:
    machine = workers.machine
    assert [device.name for device in machine.devices] == ["worker:0/CPU:0", "worker:1/CPU:0"]
    assert {device.kind for device in machine.devices} == {"CPU"}
    assert {device.memory_bytes for device in machine.devices} == {memory_bytes() // 2}
    assert machine.host == 0
    assert machine.channel_names == ("worker:0/CPU:0 and worker:1/CPU:0",)
    assert len(set(machine.peer_group.tolist())) == 1


def test_an_op_runs_on_the_worker_of_its_device(workers: Cluster) -> None:
    assert workers.call(device_of_each) == {
        "worker:0/CPU:0": "/job:worker/replica:0/task:0/device:CPU:0",
        "worker:1/CPU:0": "/job:worker/replica:0/task:1/device:CPU:0",
    }


def test_a_function_reads_what_was_assigned_before(open_ports: bool) -> None:
    with connected("local-workers:2", open_ports=open_ports) as cluster:
        assert cluster.call(read_after_assignments, 20) == [1.0] * 20


def test_the_contention_of_two_workers_is_measured(workers: Cluster) -> None:
    profile = api.profile_by_run(api.export("zoo:RNNLM-tiny"), workers, steps=2, warm_up=1)
    (of_type,) = profile.problem.machine.contention.values()
    assert "MatMul" in of_type
    assert all(slow_down >= 0 for slow_down in of_type.values())


def test_a_worker_has_one_core_for_all_its_threads(workers: Cluster) -> None:
    client, cores = workers.call(cores_of_all)
    assert len(client) == 1
    assert [len(of_worker) for of_worker in cores] == [1, 1]
    assert len(set.union(*cores)) == min(2, len(os.sched_getaffinity(0)))


@pytest.mark.skipif(platform.machine() not in SET_ATTRIBUTES, reason="another processor")
def test_all_threads_of_a_worker_have_short_time_slices(workers: Cluster) -> None:
    kernel = tuple(map(int, platform.release().split("-")[0].split(".")[:2]))
    expected = SLICE_NS if kernel >= (6, 12) else 0
    assert workers.call(slices_of_workers) == {expected}


@pytest.mark.skipif(platform.machine() not in SET_ATTRIBUTES, reason="another processor")
def test_threads_keep_their_priority_when_their_slices_become_short() -> None:
    before = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    slice_before, accepted = slice_ns(0), list[bool]()
    thread = threading.Thread(target=lambda: accepted.append(shorten_time_slices()))
    thread.start()
    thread.join()
    assert accepted == [True]
    assert (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)) == before
    assert slice_ns(0) == slice_before


def test_the_client_runs_on_a_core_without_worker_or_on_that_of_the_first_worker() -> None:
    assert client_core([0, 2, 5], num_workers=2) == 5
    assert client_core([0, 2], num_workers=2) == 0
    assert client_core([3], num_workers=2) == 3


def test_a_call_returns_its_result_and_prints_to_stderr(
    workers: Cluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = io.StringIO()  # capfd loses what a thread writes between its read and its truncation
    monkeypatch.setattr(sys, "stderr", stderr)
    assert workers.call(doubled, 21) == 42
    until = time.monotonic() + 20  # a thread passes the output on
    while "written by a call\n" not in stderr.getvalue() and time.monotonic() < until:
        time.sleep(0.01)
    assert stderr.getvalue() == "said by a call\nwritten by a call\n"
    assert capfd.readouterr() == ("", "")


def test_an_error_of_a_call_is_raised_here_and_the_cluster_stays_usable(workers: Cluster) -> None:
    with pytest.raises(InfeasibleError, match=r"^it does not fit; take a smaller one\.$"):
        workers.call(infeasible)
    with pytest.raises(RuntimeError, match="ValueError: a bug") as caught:
        workers.call(broken)
    assert "in broken" in caught.value.__notes__[0]
    with pytest.raises(RuntimeError, match="pickle"):
        workers.call(unpicklable)
    assert workers.call(doubled, 1) == 2


def port_of(connection: Connection) -> int:
    return int(connection.target.rpartition(":")[2])


def test_other_processes_cannot_reach_the_workers(workers: Cluster, open_ports: bool) -> None:
    if open_ports:
        pytest.skip("this system allows no network namespace")
    port = workers.call(port_of)
    assert workers.call(reach, port) == ["lo"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_an_unprivileged_user_can_enter_a_network_namespace(open_ports: bool) -> None:
    if open_ports:
        pytest.skip("this system allows no network namespace")
    if os.getuid() != 0:
        pytest.skip("the fixture has already tested this as an unprivileged user")
    nobody = 65534
    become = f"os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})"
    own_proc = "import ctypes; ctypes.CDLL(None).prctl(4, 1)"  # PR_SET_DUMPABLE, as after a login
    done = run_in_namespace(f"{become}; {own_proc}")
    if "does not let a user" in done.stderr:
        pytest.skip("this system allows network namespaces to root only")
    assert done.stdout.split() == [str(nobody), "lo"], done.stderr


def test_without_a_namespace_the_error_names_open_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_unshare", lambda flags: False)
    with pytest.raises(EnvironmentFailedError, match=r"listens on every .* --open-ports"):
        isolation.leave_network()


def received_in_a_chain(
    connection: Connection, num_bytes: int, num_hops: int
) -> list[tuple[int, str, str]]:
    """Return (bytes, sender, receiver) of each received tensor of a step, from the trace.

    On a busy machine, the trace of the other worker may be missing. Then another step is traced.
    """
    tf1 = tensorflow().compat.v1
    src, dst = connection.device_names.values()
    chains = Chains(connection, home=src)
    chains.add("goes", num_hops, Hop(src, dst, chains.variable(src, num_bytes)))
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    with connection.session(chains.graph, session_config()) as session:
        session.run(chains.assignments)
        for _ in range(5):
            metadata = tf1.RunMetadata()
            session.run(chains.ends["goes", num_hops], options=options, run_metadata=metadata)
            if received := received_tensors(metadata):
                return received
    return []


def received_tensors(metadata: Any) -> list[tuple[int, str, str]]:
    """Return (bytes, sender, receiver) of each received tensor in a RunMetadata."""
    labels = [
        ReceivedLabel.parse(node.timeline_label)
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        if node.node_name == "RecvTensor"
    ]
    return [(label.num_bytes(0, []), label.src, label.dst) for label in labels if label is not None]


def test_a_hop_of_a_chain_is_one_transfer_and_one_signal_back(workers: Cluster) -> None:
    src, dst = (f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in (0, 1))
    received = workers.call(received_in_a_chain, 5000, num_hops=3)
    there, back = (5000, src, dst), (0, dst, src)
    assert sorted(received) == [back] * 3 + [there] * 3


def test_transfers_of_all_sizes_are_timed_both_ways(workers: Cluster) -> None:
    sizes = (1, 2**12, 2**20)
    timed = timed_transfers(workers, sizes, Effort(1))
    assert [sample.num_bytes for sample in timed.samples] == [*sizes, *sizes]
    assert {sample.link_kind for sample in timed.samples} == {("CPU", "CPU", "")}
    assert sum(sample.us for sample in timed.samples) > 0


def overheads_both_ways(
    connection: Connection, transfer_us: dict[int, float]
) -> list[TransferOverheads]:
    a, b = connection.device_names.values()
    return [
        transfer_overheads(connection, *ends, transfer_us, Effort(7)) for ends in ((a, b), (b, a))
    ]


def test_transfers_delay_workers_that_compute_and_larger_ones_more(workers: Cluster) -> None:
    def overhead_us() -> tuple[float, float]:
        both_ways = workers.call(overheads_both_ways, {1: 110.0, 2**22: 3000.0})
        sender, receiver = (
            fit_overhead(overhead for each in both_ways for overhead in getattr(each, end).items())
            for end in ("sender_us", "receiver_us")
        )
        small_us, per_byte = (sum(part) for part in zip(sender, receiver, strict=True))
        return small_us, small_us + per_byte * 2**20

    # Other programs on the machine can hide the overhead in a measurement.
    measured: list[tuple[float, float]] = []
    while len(measured) < 5:
        small_us, large_us = overhead_us()
        assert 0 <= small_us <= large_us
        if large_us > max(small_us, 50):
            return
        measured.append((small_us, large_us))
    if os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
        pytest.skip("other work hides what transfers cost a worker that computes")
    pytest.fail(f"larger transfers cost no more than small ones: {measured}")


def test_the_wait_at_a_worker_that_computes_is_measured_and_a_gpu_has_none(
    workers: Cluster,
) -> None:
    src, dst = workers.call(device_names).values()
    assert workers.call(wait_us, src, dst, Effort(3)) >= 0  # its length depends on the kernel
    assert workers.call(wait_us, "/device:GPU:0", dst, Effort(3)) == 0


def test_the_fit_of_a_link_has_the_lines_of_its_overheads() -> None:
    us = {num_bytes: 100 + 1e-3 * num_bytes for num_bytes in (1, 1000, 10**6)}
    there = TransferOverheads({4: 40.0, 10**6: 340.0}, {4: 70.0, 10**6: 470.0})
    back = TransferOverheads({4: 40.0, 10**6: 340.0}, {4: 70.0, 10**6: 470.0})
    timed = [LinkTimes(us, 140.0, 2.0, 1.5, overheads) for overheads in (there, back)]
    (fit,) = TimedTransfers({("CPU", "CPU", ""): timed}).fits()
    sender = (fit.comm.sender_us, fit.comm.sender_us_per_byte)
    receiver = (fit.comm.receiver_us, fit.comm.receiver_us_per_byte)
    assert sender == pytest.approx((40.0, 3e-4), rel=1e-3)
    assert receiver == pytest.approx((70.0, 4e-4), rel=1e-3)


def test_a_fit_has_the_means_of_signals_waits_and_checks() -> None:
    us = {num_bytes: 100 + 1e-3 * num_bytes for num_bytes in (1, 1000, 10**6)}
    there = LinkTimes(us, 140.0, 2.0, 1.5, wait_us=3000.0)
    back = LinkTimes(us, 120.0, 2.2, 1.7, wait_us=2000.0)
    (fit,) = TimedTransfers({("CPU", "GPU", "out of a"): [there, back]}).fits()
    line = CommModel(pytest.approx(100.0), pytest.approx(1e-3), wait_us=pytest.approx(2500.0))
    assert fit.comm == line  # with no overheads
    assert (fit.link_kind, fit.num_samples) == (("CPU", "GPU", "out of a"), 6)
    checked = (fit.signal_us, fit.two_at_once, fit.both_ways)
    assert checked == pytest.approx((130.0, 2.1, 1.6))


# Ends of processes.


def test_the_error_names_a_worker_that_dies_during_a_call(mark: str, open_ports: bool) -> None:
    with connected("local-workers:2", open_ports=open_ports) as cluster:
        victim = workers_of(mark)[-1]
        kill_soon(victim)
        with pytest.raises(
            EnvironmentFailedError, match=rf"worker:\d \(process {victim}\) was killed by SIGKILL"
        ):
            cluster.call(run_for_long)
        assert not marked(mark)
        with pytest.raises(EnvironmentFailedError, match="cannot be called any more"):
            cluster.call(doubled, 1)


def test_the_error_names_a_worker_that_hangs_during_a_call(mark: str, open_ports: bool) -> None:
    with connected("local-workers:2", open_ports=open_ports) as cluster:
        victim = workers_of(mark)[-1]
        threading.Timer(0.5, os.kill, (victim, signal.SIGSTOP)).start()
        began = time.monotonic()
        with pytest.raises(EnvironmentFailedError, match=r"worker:\d at \S+ accepts .* answered"):
            cluster.call(run_for_long)
        assert time.monotonic() - began < 0.5 + PERIOD_S + NUM_SILENT * (PERIOD_S + ANSWER_S) + 5
        assert not marked(mark)


def test_a_port_without_an_answer_is_silent_and_a_closed_one_is_not() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        (closed,) = free_ports(1)
        address_of = {
            "up": f"127.0.0.1:{listener.getsockname()[1]}",
            "gone": f"127.0.0.1:{closed}",
        }
        assert silent_tasks(address_of, 0.1) == {"up"}


def test_if_the_client_dies_its_workers_end_too(mark: str) -> None:
    with connected("local-workers:1", open_ports=True) as cluster:
        # This is impossible if the workers are in a network namespace.
        socket.create_connection(("127.0.0.1", cluster.call(port_of)), timeout=5).close()
        with pytest.raises(EnvironmentFailedError, match=r"client process .* killed by SIGKILL"):
            cluster.call(die)
        assert not marked(mark)


PARENT = """
import sys
sys.path[:0] = [{tests!r}]
import test_cluster
from pesto_cli.cluster import connected

try:
    with connected("local-workers:1", open_ports={open_ports}) as cluster:
        cluster.call(test_cluster.run_for_long)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_all_processes_end_with_the_parent_whatever_signal_ends_it(
    mark: str, open_ports: bool
) -> None:
    program = PARENT.format(tests=str(Path(__file__).parent), open_ports=open_ports)
    ends = {signal.SIGKILL: b"", signal.SIGTERM: b"", signal.SIGINT: b"interrupted\n"}
    parents = {
        number: subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for number in ends
    }
    for number, parent in parents.items():
        assert parent.stderr is not None
        assert parent.stderr.readline() == b"busy\n"
        parent.send_signal(number)
    for number, parent in parents.items():
        out, _ = parent.communicate(timeout=60)
        assert out == ends[number]
    assert gone(mark)


@dataclass(frozen=True)
class OnUsedPort(LocalWorkers):
    """Workers on a port that is already in use."""

    def open(self, limit_s: float, on_loss: Any) -> Opened:
        servers = []

        def used_port(count: int) -> list[int]:
            servers.append(socket.create_server(("127.0.0.1", 0)))
            return [servers[0].getsockname()[1]]

        local_workers.free_ports = used_port
        return super().open(limit_s, on_loss)


def test_the_error_shows_the_output_of_a_worker_that_does_not_start(
    mark: str, open_ports: bool
) -> None:
    with pytest.raises(EnvironmentFailedError) as caught:
        ClientProcess(OnUsedPort(1, open_ports), start_limit_s=60)
    assert re.search(r"worker:0 .* ended with exit code 1\.", str(caught.value))
    assert "Could not start gRPC server" in caught.value.__notes__[0]
    assert not marked(mark)


def test_a_worker_that_exceeds_the_start_limit_is_ended(mark: str, open_ports: bool) -> None:
    with (
        pytest.raises(EnvironmentFailedError, match=r"worker:0 .* does not listen after 0 s"),
        connected("local-workers:1", open_ports=open_ports, start_limit_s=0.001),
    ):
        pass
    assert not marked(mark)


# Specs, files, names.


@pytest.mark.parametrize(
    "spec", ["local-workers", "local-workers:0", "local-workers:two", "local-workers:65"]
)
def test_an_invalid_number_of_workers_is_refused(spec: str) -> None:
    assert is_live(spec)
    with pytest.raises(BadInputError, match="a number of workers from 1 to 64"), connected(spec):
        pass


def test_more_workers_than_cores_cause_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    LocalWorkers.parse("local-workers:64", open_ports=False)
    assert ("some wait" in caplog.text) == (len(os.sched_getaffinity(0)) < 64)


def test_presets_and_machine_files_are_not_live(tmp_path: Path) -> None:
    machine, cluster, neither = (tmp_path / name for name in ("machine", "cluster", "neither"))
    machine.write_text('signal_us = 7.0\n[[devices]]\nname = "GPU:0"\n')
    cluster.write_text('[cluster]\nworker = ["here:2222"]\n')
    neither.write_text("[cluster")
    assert is_live("local-gpus")
    assert is_live(str(cluster))
    for spec in ("v100x2-nvlink", str(machine), str(neither), str(tmp_path / "missing")):
        assert not is_live(spec)
    for spec, found in (
        ("v100x2-nvlink", "is a preset, .* nothing to run on"),
        ("local-worker:2", "nothing to run on"),
        (str(machine), r"no \[cluster\] in the file \(it describes devices"),
        (str(neither), "is not TOML"),
        (str(tmp_path / "missing"), "missing does not exist"),
        ("missing.toml", "missing.toml does not exist"),
    ):
        with pytest.raises(BadInputError, match=found), connected(spec):
            pass


def test_without_a_gpu_the_error_names_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with (
        pytest.raises(EnvironmentFailedError, match=r"no GPU here.*local-workers:2.*v100x2-nvlink"),
        connected("local-gpus"),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[cluster]\nworker = []\n", "has no task"),
        ('[cluster]\nlocalhost = ["here:1"]\n', "job 'localhost', which is TensorFlow's name"),
        ("[cluster]\n", "has no task"),
        ("[hosts]\n", r"no \[cluster\] in the file \(it has hosts\)"),
        ("cluster = 3\n", r"\[cluster\] is '3'; a job with a list of addresses"),
        ('[cluster]\nworker = "here:1"\n', r"\[cluster\] worker is 'here:1'; a job with a list"),
        ("[cluster]\nworker = [1]\n", r"\[cluster\] worker is '\[1\]'; a job with a list"),
        ('[cluster]\nworker = ["here"]\n', "worker:0 is at 'here'; HOST:PORT was expected"),
        ('[cluster]\nworker = ["here:99999"]\n', "HOST:PORT was expected"),
        ('[cluster]\nworker = ["a:1"]\nps = ["a:1"]\n', "two tasks are at a:1"),
        ('[cluster]\nworker = ["a:1"]\n[hosts]\nx = ["worker:1"]\n', "names 'worker:1'"),
        ('[cluster]\nworker = ["a:1", "a:2"]\n[hosts]\nx = ["worker:0"]\n', "lacks worker:1"),
        (
            '[cluster]\nworker = ["a:1"]\n[hosts]\nx = ["worker:0"]\ny = ["worker:0"]\n',
            "worker:0 on x and on y",
        ),
        (
            '[cluster]\nworker = ["a:1"]\n[host]\nx = ["worker:0"]\n',
            "host is an unknown key; .* 'hosts'",
        ),
    ],
)
def test_a_cluster_file_with_a_mistake_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(BadInputError, match=message) as caught:
        read_cluster_file(path)
    assert str(path) in str(caught.value)


def test_the_host_of_a_task_follows_from_its_address_or_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    tasks = '[cluster]\nworker = ["10.0.0.1:1", "10.0.0.1:2"]\nps = ["[::1]:3"]\n'
    path.write_text(tasks)
    found = read_cluster_file(path)
    assert found.host_of == {"worker:0": "10.0.0.1", "worker:1": "10.0.0.1", "ps:0": "::1"}
    path.write_text(tasks + '[hosts]\na = ["worker:0"]\nb = ["ps:0", "worker:1"]\n')
    assert read_cluster_file(path).host_of == {"worker:0": "a", "worker:1": "b", "ps:0": "b"}


def test_names_are_converted_to_those_of_tensorflow_and_back() -> None:
    assert tensorflow_name("worker:12/GPU:3") == "/job:worker/task:12/device:GPU:3"
    assert tensorflow_name("GPU:0") == "/device:GPU:0"
    assert tensorflow_name("/device:GPU:0") is None
    assert pesto_name("/job:ps/replica:0/task:4/device:CPU:0") == "ps:4/CPU:0"
    assert pesto_name("/job:localhost/replica:0/task:0/device:GPU:1") == "GPU:1"


def test_all_links_from_a_host_to_others_share_its_network_card() -> None:
    hosts = {"w:0": "left", "w:1": "left", "w:2": "right"}
    devices = [Device(f"{task}/CPU:0", "CPU", 1) for task in hosts]
    where = {f"{task}/CPU:0": Location(host, task) for task, host in hosts.items()}
    found = {(link.src[:3], link.dst[:3]): link for link in nominal_links(devices, where)}
    assert found["w:0", "w:2"].channel == found["w:1", "w:2"].channel == "out of left"
    assert found["w:2", "w:0"].channel == found["w:2", "w:1"].channel == "out of right"
    assert found["w:0", "w:1"].channel == found["w:1", "w:0"].channel != ""
    assert found["w:0", "w:2"].comm == NETWORK
    assert found["w:0", "w:1"].comm == LOOPBACK


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        ("0::/\n", {}, 2048),
        ("0::/a/b\n", {"/sys/fs/cgroup/a/memory.max": "1000\n"}, 1000),
        ("0::/a\n", {"/sys/fs/cgroup/a/memory.max": "max\n"}, 2048),
        ("0::/a\n", {"/sys/fs/cgroup/memory.max": "99999999\n"}, 2048),
        ("4:memory:/a\n1:cpu:/\n", {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "7\n"}, 7),
    ],
)
def test_memory_is_that_of_the_host_or_the_limit_of_a_cgroup(
    cgroup: str, files: dict[str, str], expected: int
) -> None:
    files |= {"/proc/meminfo": "MemTotal:    2 kB\nMemFree: 1 kB\n", "/proc/self/cgroup": cgroup}

    def read(path: str) -> str:
        if path not in files:
            raise FileNotFoundError(path)
        return files[path]

    assert memory_bytes(read) == expected


# A running cluster: two tasks on one host, and one on another.

SERVERS = """
import os, sys
from pesto_cli.cluster import serve
from pesto_cli.graphdef.tensorflow import tensorflow

tensorflow()
for task in range(3):
    if os.fork() == 0:
        serve(sys.argv[1], task)
for task in range(3):
    os.wait()
"""


@contextmanager
def two_hosts(folder: Path) -> Iterator[Path]:
    """Start a cluster on loopback addresses, one address for each host; yield its file."""
    path = folder / "cluster.toml"
    addresses = [
        f'"127.0.0.{host}:{port}"' for host, port in zip((1, 1, 2), free_ports(3), strict=True)
    ]
    path.write_text(f"[cluster]\nworker = [{', '.join(addresses)}]\n")
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    servers = subprocess.Popen(
        [sys.executable, "-c", SERVERS, str(path)],
        env=environ,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield path
    finally:
        os.killpg(servers.pid, signal.SIGKILL)
        servers.wait()


def test_a_running_cluster_is_used_and_the_error_names_a_task_that_dies(
    mark: str, tmp_path: Path
) -> None:
    # `connected` waits until all tasks listen.
    with two_hosts(tmp_path) as path, connected(str(path)) as cluster:
        machine = cluster.machine
        names = [f"worker:{task}/CPU:0" for task in range(3)]
        assert [device.name for device in machine.devices] == names
        shares = [device.memory_bytes for device in machine.devices]
        assert shares == [memory_bytes() // 2] * 2 + [memory_bytes()]
        assert machine.channel[0, 2] == machine.channel[1, 2] != machine.channel[0, 1]
        assert machine.channel[2, 0] == machine.channel[2, 1] != machine.channel[0, 2]
        assert [*cluster.call(device_of_each)] == names
        with pytest.raises(EnvironmentFailedError, match="worker:0 cannot listen on port"):
            serve(path, 0)
        # TensorFlow would wait for ever for a task that is missing when a session opens.
        os.kill(workers_of(mark)[-1], signal.SIGKILL)
        with pytest.raises(EnvironmentFailedError, match=r"worker:\d at 127.0.0.\d:\d+ cannot"):
            cluster.call(run_for_long)
    assert gone(mark)


def test_waiting_for_a_cluster_with_a_missing_task_ends_with_an_error(
    tmp_path: Path, mark: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cluster.toml"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        (missing,) = free_ports(1)
        up = listener.getsockname()[1]
        path.write_text(f'[cluster]\nworker = ["127.0.0.1:{up}", "127.0.0.1:{missing}"]\n')
        with (
            pytest.raises(EnvironmentFailedError, match=rf"worker:1 at 127.0.0.1:{missing} cannot"),
            connected(str(path), start_limit_s=1),
        ):
            pass
        err = capfd.readouterr().err
        assert re.search(rf"^worker:1 at 127.0.0.1:{missing} .* waiting up to 1 s", err)
        path.write_text(f'[cluster]\nworker = ["127.0.0.1:{up}"]\n')
        with (
            pytest.raises(EnvironmentFailedError, match=r"cannot open a session .* no answer in 2"),
            connected(str(path), start_limit_s=1),
        ):
            pass
    assert not marked(mark)


def test_a_session_that_does_not_open_causes_a_warning_and_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(discovery, "SILENT_S", 0.01)
    with pytest.raises(EnvironmentFailedError, match="cannot open a session at grpc://there"):
        discovery._within(0.02, "grpc://there", threading.Event().wait)
    assert "no answer yet from TensorFlow at grpc://there" in caplog.text


def test_ctrl_c_ends_a_command_and_all_its_processes(mark: str, open_ports: bool) -> None:
    argv = ["comm", "-m", "local-workers:2", "-o", os.devnull, *["--open-ports"] * open_ports]
    code, output = run_in_terminal(*argv, interrupt_at="timing transfers on local-workers:2, ")
    assert code == 130
    assert "starting local-workers:2 ..." in output
    assert output.count(HIDE_CURSOR) == output.count(SHOW_CURSOR) == 2
    assert output.rstrip().endswith("Interrupted.")
    assert not marked(mark)


def test_serving_a_task_that_the_file_lacks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('[cluster]\nworker = ["127.0.0.1:2222"]\n')
    with pytest.raises(BadInputError, match=r"no task ps:1; one of worker:0 was expected"):
        serve(path, 1, "ps")
