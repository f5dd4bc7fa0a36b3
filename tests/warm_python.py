"""Run `pesto` and `python FILE` without delay, as forks of a process that has loaded pesto.

TensorFlow takes seconds to import, the kernels two to read, and a page of the documentation runs a
dozen commands. If PYTHONPATH has another copy of pesto, the fork imports that one.
"""

import contextlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

CLIENT = """#!{python} -ES
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
asked = json.dumps([{name!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(asked).to_bytes(8, "big")], [0, 1, 2])
server.sendall(asked)
sys.exit((server.recv(1) or b"\\x8b")[0])
"""


@contextlib.contextmanager
def warm_commands() -> Iterator[Path]:
    """Yield a folder for PATH that contains `pesto` and `python`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        address = str(folder / "socket")
        for command in ("pesto", "python"):
            path = folder / command
            path.write_text(CLIENT.format(python=sys.executable, address=address, name=command))
            path.chmod(0o755)
        server = subprocess.Popen(
            [sys.executable, __file__, address], stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield folder
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def serve(address: str) -> None:
    """Load the libraries; then start a fork for every client, until killed."""
    from loaded import load

    load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while True:
            client, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                code = 70
                try:
                    code = answer(client)
                finally:
                    client.send(bytes([code]))
                    os._exit(code)
            client.close()


def answer(client: socket.socket) -> int:
    """Run the command that a client requests in this process; return its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, descriptors, _, _ = socket.recv_fds(client, 8, 3)
    asked = b""
    while len(asked) < int.from_bytes(length, "big"):
        asked += client.recv(65536)
    name, arguments, folder, environment = json.loads(asked)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if name == "python" and not arguments[0].endswith(".py"):
        return subprocess.call([sys.executable, *arguments])
    program = Path(arguments[0] if name == "python" else sys.executable)
    first = [str(program.parent.absolute()), *environment.get("PYTHONPATH", "").split(":")]
    sys.path[0:1] = [os.path.abspath(entry) for entry in first if entry]
    forget_another_copy()
    return run(name, arguments)


def forget_another_copy() -> None:
    """Let `import` find pesto anew if the one that is loaded is not the first one in `sys.path`."""
    found = PathFinder.find_spec("pesto_cli")
    if found is not None and found.origin != sys.modules["pesto_cli"].__file__:
        for name in [name for name in sys.modules if name.partition(".")[0] == "pesto_cli"]:
            del sys.modules[name]


def run(name: str, arguments: list[str]) -> int:
    """Run a command in this process; return its exit code."""
    try:
        if name == "python":
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
        else:
            sys.argv = ["pesto", *arguments]
            from pesto_cli.cli import main

            main()
    except SystemExit as exit_:
        if isinstance(exit_.code, str):
            print(exit_.code, file=sys.stderr)
            return 1
        return int(exit_.code or 0)
    except Exception:
        import traceback

        traceback.print_exc()
        return 1
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
