"""The connection to a cluster: the session target and the names of the devices."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow


@dataclass(frozen=True)
class Connection:
    """A cluster in its client process; functions that `Cluster.call` runs get it first.

    target: target of sessions: `""` for this process, or an address (`grpc://127.0.0.1:2345`).
    device_names: pesto's name of each device of the machine (`worker:0/CPU:0`) -> TensorFlow's full
        name, as in `session.list_devices()` and in step stats
        (`/job:worker/replica:0/task:0/device:CPU:0`).
    kept: what a call keeps for later calls, such as an open session.
    """

    target: str
    device_names: Mapping[str, str]
    kept: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @contextmanager
    def session(self, graph: Any, config: Any = None) -> Iterator[Any]:
        """Open a `tf.compat.v1.Session` on the cluster; it is the default session in the context.

        The session has its own variables, which end with it. `config` is a ConfigProto, which is
        not changed.
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
            raise  # A task may be gone, and closing the session would wait 30 s for it.
        except BaseException:
            session.close()
            raise
        session.close()
