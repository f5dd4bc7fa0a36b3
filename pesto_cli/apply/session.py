"""The session settings with which TensorFlow runs a placed graph unchanged."""

import warnings
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow

# Settings that keep a placed graph unchanged. Of several values all are accepted, and the first is
# set. For opt_level and global_jit_level, -1 means off and 0 means TensorFlow's default.
SETTINGS: Mapping[str, tuple[int, ...]] = {
    # Grappler adds, merges and removes ops, and control edges with them.
    "graph_options.rewrite_options.disable_meta_optimizer": (True,),
    # The older optimiser replaces ops by constants with other names.
    "graph_options.optimizer_options.opt_level": (-1,),
    # XLA runs many ops as one.
    "graph_options.optimizer_options.global_jit_level": (-1, 0),
    # If a device is missing, or has no kernel for an op, raise an error; do not use another device.
    "allow_soft_placement": (False,),
}
# TensorFlow's names of the values that are set, if they have names.
VALUE_NAMES: Mapping[str, str] = {
    "graph_options.optimizer_options.opt_level": "L0",
    "graph_options.optimizer_options.global_jit_level": "OFF",
}


class PlacementMayBeLostWarning(UserWarning):
    """Warning: with the settings of a session, TensorFlow may change a placed graph."""


def session_config() -> Any:
    """Return a new `ConfigProto` for sessions that run a placed graph.

    The caller can change all other settings.
    """
    config = tensorflow().compat.v1.ConfigProto()
    enforce_settings(config)
    return config


def enforce_settings(config: Any) -> tuple[str, ...]:
    """Set a `ConfigProto` to keep a placed graph unchanged; return the settings that it changed."""
    departing = _departing(config)
    for path, (value, *_) in SETTINGS.items():
        parent, _, field = path.rpartition(".")
        setattr(attrgetter(parent)(config) if parent else config, field, value)
    return departing


def check_session_config(config: Any = None) -> tuple[str, ...]:
    """Return the settings in which a `ConfigProto` differs from `session_config()`.

    Warns with PlacementMayBeLostWarning if there are any. None means TensorFlow's defaults.
    """
    config = config or tensorflow().compat.v1.ConfigProto()
    departing = _departing(config)
    if departing:
        wanted = ", ".join(
            f"{path} = {VALUE_NAMES.get(path, SETTINGS[path][0])}" for path in departing
        )
        warnings.warn(
            "with these session settings TensorFlow may move ops or change their order; "
            f"{wanted} was expected: start from pesto_cli.apply.session_config().",
            PlacementMayBeLostWarning,
            stacklevel=2,
        )
    return departing


def _departing(config: Any) -> tuple[str, ...]:
    return tuple(
        path for path, accepted in SETTINGS.items() if attrgetter(path)(config) not in accepted
    )
