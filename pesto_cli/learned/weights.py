"""The file format of weights: a zip of arrays as in `.npz`, and a JSON header; nothing is pickled.

header.json             `HeaderSchema`
weights/NAME.npy        float32, the weights of the network
mean/NAME.npy, square/NAME.npy
                        float32, the moments of Adam, so that a training can be resumed
"""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from pesto_cli.data.result import RewardPoint
from pesto_cli.errors import BadInputError
from pesto_cli.files.arrays import write_arrays
from pesto_cli.files.reading import check_input_size, read_bytes
from pesto_cli.files.storage import Schema, parse_json, sha256
from pesto_cli.files.writing import atomic_write
from pesto_cli.learned.adam import Moments
from pesto_cli.learned.features import num_features
from pesto_cli.learned.graph_attention import GraphAttention
from pesto_cli.learned.network import Array, Network
from pesto_cli.learned.policy import Policy
from pesto_cli.learned.sequence import SequenceNetwork
from pesto_cli.learned.training import State
from pesto_cli.learned.trials import Kept, Trials

FORMAT = "pesto-weights"
HEADER = "header.json"
WHAT = "file of weights (pesto train POLICY PROFILE... -o WEIGHTS)"
PARTS = ("weights", "mean", "square")
NETWORKS: dict[str, type[Network]] = {
    network.name: network for network in (SequenceNetwork, GraphAttention)
}

_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Reward = Annotated[float, Field(ge=-1e150, le=1e150)]  # so that its square is finite
_Us = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class KeptSchema(Schema):
    """`Kept`: a placement."""

    cost_us: _Us
    actions: list[int]


class TrialsSchema(Schema):
    """`Trials` of one graph."""

    count: _Count
    mean: _Reward
    variance: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    best_us: _Us
    kept: list[KeptSchema]
    recent_us: list[_Us]


class PointSchema(Schema):
    """`RewardPoint` of the reward curve."""

    num_placements: _Count
    graph: str
    mean_us: _Us
    best_us: _Us


class HeaderSchema(Schema):
    """The header of a file of weights."""

    format: str
    version: int
    policy: str
    """The policy that was trained."""
    seed: Annotated[int, Field(ge=0)]
    """The seed of the training."""
    settings: dict[str, bool | int | float] = {}
    """The settings of the policy that differ from the defaults, by name."""
    num_devices: Annotated[int, Field(ge=1, lt=2**31)]
    """The number of devices of the machines, CPUs included."""
    network: str
    """The kind of network."""
    sizes: dict[str, int]
    """The sizes of its layers, by the fields of the network."""
    num_steps: _Count
    """Steps of Adam so far."""
    trials: dict[str, TrialsSchema]
    """What was seen of each profile that the policy was trained on, by its hash."""
    curve: list[PointSchema]
    """The reward curve: a point for each iteration."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained policy.

    policy: its name. seed: the seed of the training.
    settings: the fields of the policy with other values than the defaults, by name.
    file_hash: SHA-256 of the file, empty until it is read.
    """

    policy: str
    seed: int
    state: State
    settings: Mapping[str, float] = field(default_factory=dict)
    file_hash: str = ""

    def __repr__(self) -> str:
        state = self.state
        return (
            f"<Trained: {self.policy}, {state.num_placements:,} placements of "
            f"{len(state.trials)} graphs, {state.num_devices} devices>"
        )

    def configured(self, policy: Policy) -> Policy:
        """Return a policy with the settings of the training, but with those that it has itself.

        Raises:
            BadInputError: the weights are those of another policy, or a setting is unknown.
        """
        self._check_name(policy)
        unknown = self.settings.keys() - {each.name for each in fields(policy)}
        if unknown:
            raise BadInputError(
                f"the weights have a setting {min(unknown)!r}, which {policy.name} does not know; "
                "weights of this version were expected: train the policy again."
            )
        known: dict[str, Any] = {**self.settings, **settings_of(policy)}
        try:
            return replace(policy, **known)
        except ValueError as error:
            raise BadInputError(
                f"the weights have a wrong setting: {error}; train the policy again."
            ) from None

    def _check_name(self, policy: Policy) -> None:
        if self.policy != policy.name:
            raise BadInputError(
                f"the weights are those of policy {self.policy!r}; weights of {policy.name!r} were "
                f"expected: train it, or use {self.policy}."
            )

    def state_for(self, policy: Policy, num_devices: int) -> State:
        """Return the state, if a policy can use it for a machine; see `configured`.

        Raises:
            BadInputError: they are of another policy or network, or for another number of devices.
        """
        self._check_name(policy)
        if self.state.network != policy.network:
            raise BadInputError(
                f"the weights are those of {self.state.network}; those of {policy.network} were "
                "expected: train the policy again, or leave out the sizes of its network."
            )
        if self.state.num_devices != num_devices:
            raise BadInputError(
                f"the weights are for {self.state.num_devices} devices, and the machine has "
                f"{num_devices}; weights for as many devices were expected: train them on a "
                "profile of this machine."
            )
        return self.state


def settings_of(policy: Policy) -> dict[str, float]:
    """Return the settings of a policy that differ from the defaults, by name."""
    values = {each.name: (getattr(policy, each.name), each.default) for each in fields(policy)}
    return {
        name: value
        for name, (value, default) in values.items()
        if name != "weights" and value != default
    }


def write_weights(path: Path | str, trained: Trained) -> None:
    """Write a trained policy; equal policies give equal files.

    Raises:
        BadInputError: a weight is not finite, because the training has diverged.
        BadInputError, EnvironmentFailedError: see `atomic_write`.
    """
    state, data = trained.state, io.BytesIO()
    for name, weight in state.weights.items():
        if not np.isfinite(weight).all():
            raise BadInputError(
                f"the training has diverged: {name} of the network has a number that is not "
                f"finite; {path} is not written: train again, with another seed or other weights."
            )
    header = HeaderSchema(
        format=FORMAT,
        version=1,
        policy=trained.policy,
        seed=trained.seed,
        settings=dict(trained.settings),
        num_devices=state.num_devices,
        network=state.network.name,
        sizes={name: int(size) for name, size in asdict(state.network).items()},
        num_steps=state.moments.num_steps,
        trials={graph: _written(each) for graph, each in state.trials.items()},
        curve=[PointSchema(**asdict(point)) for point in state.curve],
    )
    arrays = zip(PARTS, (state.weights, state.moments.mean, state.moments.square), strict=True)
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(zipfile.ZipInfo(HEADER), json.dumps(header.model_dump()))
        for part, values in arrays:
            write_arrays(archive, {f"{part}/{name}": value for name, value in values.items()})
    atomic_write(path, data.getvalue())


def read_weights(path: Path | str) -> Trained:
    """Read a trained policy.

    Raises:
        BadInputError: the file is missing, damaged, of another version, or no file of weights.
    """
    data = read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            check_input_size(path, sum(each.file_size for each in archive.infolist()))
            header = parse_json(path, archive.read(HEADER), FORMAT, WHAT, HeaderSchema)
            state = _state(header, archive)
    except BadInputError:
        raise
    except Exception as error:  # damaged archives and headers of arrays fail in many ways
        raise BadInputError(
            f"{path} is damaged, of another version or no file of weights ({error}); a {WHAT} was "
            "expected."
        ) from None
    return Trained(header.policy, header.seed, state, header.settings, sha256(data))


def _state(header: HeaderSchema, archive: zipfile.ZipFile) -> State:
    network, count = NETWORKS[header.network](**header.sizes), header.num_devices
    weights, mean, square = (
        {
            name: _array(archive, f"{part}/{name}.npy", shape)
            for name, shape in network.shapes(num_features(count), count)
        }
        for part in PARTS
    )
    return State(
        network,
        weights,
        Moments(mean, square, header.num_steps),
        count,
        {graph: _trials(each) for graph, each in header.trials.items()},
        tuple(RewardPoint(**each.model_dump()) for each in header.curve),
    )


def _written(trials: Trials) -> TrialsSchema:
    kept = [KeptSchema(cost_us=each.cost_us, actions=[*each.actions]) for each in trials.kept]
    return TrialsSchema(**{**asdict(trials), "kept": kept, "recent_us": [*trials.recent_us]})


def _trials(read: TrialsSchema) -> Trials:
    kept = tuple(Kept(each.cost_us, tuple(each.actions)) for each in read.kept)
    recent_us = tuple(read.recent_us)
    return Trials(read.count, read.mean, read.variance, read.best_us, kept, recent_us)


def _array(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...]) -> Array:
    """Return an array of a known shape; nothing is allocated by sizes that the file states."""
    member = io.BytesIO(archive.read(name))
    np.lib.format.read_magic(member)
    found, in_fortran_order, kind = np.lib.format.read_array_header_1_0(member)
    if (found, kind) != (shape, np.dtype(np.float32)):
        raise ValueError(f"{name} is {kind}{list(found)}, float32{list(shape)} was expected")
    if in_fortran_order and len(shape) > 1:
        raise ValueError(f"{name} is in Fortran order, C order was expected")
    values = np.frombuffer(member.read(), dtype=np.float32).reshape(shape)
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has a number that is not finite")
    if name.startswith("square/") and values.min(initial=0.0) < 0:
        raise ValueError(f"{name} has a mean of squares that is negative")
    return values
