"""What code that runs on a cluster is given: where to open its sessions, and on which devices."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow


@dataclass(frozen=True)
class Connection:
    """A cluster as seen from its client process.

    target: of a session: `""` for this process, or an address such as `grpc://127.0.0.1:2345`.
    device_names: pesto's name of each device of the machine (`worker:0/CPU:0`) to TensorFlow's, in
        full, as `session.list_devices()` and step stats write it
        (`/job:worker/replica:0/task:0/device:CPU:0`).
    """

    target: str
    device_names: Mapping[str, str]

    @contextmanager
    def session(self, graph: Any, config: Any = None) -> Iterator[Any]:
        """Open a `tf.compat.v1.Session` on the cluster and make it the default, for a context.

        Its variables are its own, and go with it. `config` is a ConfigProto, and not changed.
        """
        tf = tensorflow()
        own = tf.compat.v1.ConfigProto()
        if config is not None:
            own.CopyFrom(config)
        own.isolate_session_state = True
        own.gpu_options.allow_growth = True
        session = tf.compat.v1.Session(self.target, graph=graph, config=own)
        errors = tf.errors
        try:
            with graph.as_default(), session.as_default():
                yield session
        except (errors.UnavailableError, errors.AbortedError, errors.CancelledError):
            raise  # a part of the cluster may be gone: to close would wait 30 s for it
        except BaseException:
            session.close()
            raise
        session.close()
