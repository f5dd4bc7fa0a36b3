"""The session settings under which TensorFlow runs a placed graph as it stands."""

import warnings
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow

# What keeps a placed graph as it is; of several values the first is set, all are accepted. For
# opt_level and global_jit_level -1 is off, and 0 stands for the default.
SETTINGS: Mapping[str, tuple[int, ...]] = {
    # Grappler adds, merges and removes ops, and control edges with them.
    "graph_options.rewrite_options.disable_meta_optimizer": (True,),
    # The older optimiser folds constants into ops of other names.
    "graph_options.optimizer_options.opt_level": (-1,),
    # XLA runs many ops as one.
    "graph_options.optimizer_options.global_jit_level": (-1, 0),
    # A device that is missing, or has no kernel for the op, is an error, not another device.
    "allow_soft_placement": (False,),
}
# TensorFlow's names of the values that are set, where they have some.
VALUE_NAMES: Mapping[str, str] = {
    "graph_options.optimizer_options.opt_level": "L0",
    "graph_options.optimizer_options.global_jit_level": "OFF",
}


class PlacementMayBeLostWarning(UserWarning):
    """A session's settings let TensorFlow change a placed graph before it runs it."""


def session_config() -> Any:
    """Return a new `ConfigProto` for sessions that run a placed graph.

    Whatever else the session needs can be added to it.
    """
    config = tensorflow().compat.v1.ConfigProto()
    enforce_settings(config)
    return config


def enforce_settings(config: Any) -> tuple[str, ...]:
    """Have a `ConfigProto` keep a placed graph as it is; return the settings that did not."""
    departing = _departing(config)
    for path, (value, *_) in SETTINGS.items():
        parent, _, field = path.rpartition(".")
        setattr(attrgetter(parent)(config) if parent else config, field, value)
    return departing


def check_session_config(config: Any = None) -> tuple[str, ...]:
    """Return the settings in which a `ConfigProto` departs from `session_config()`.

    Warns with PlacementMayBeLostWarning if there are any. None stands for TensorFlow's defaults.
    """
    config = config or tensorflow().compat.v1.ConfigProto()
    departing = _departing(config)
    if departing:
        wanted = ", ".join(
            f"{path} = {VALUE_NAMES.get(path, SETTINGS[path][0])}" for path in departing
        )
        warnings.warn(
            "under these session settings TensorFlow may move ops or lose their order; "
            f"{wanted} was expected: start from pesto_cli.apply.session_config().",
            PlacementMayBeLostWarning,
            stacklevel=2,
        )
    return departing


def _departing(config: Any) -> tuple[str, ...]:
    return tuple(
        path for path, accepted in SETTINGS.items() if attrgetter(path)(config) not in accepted
    )
