"""Training of learned policies."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pesto_cli.api.arguments import checked
from pesto_cli.api.placing import check_can_fit
from pesto_cli.api.tuning import check_same
from pesto_cli.cluster import Cluster
from pesto_cli.data.columns import FloatArray
from pesto_cli.data.limits import Limits
from pesto_cli.data.solution import Solution
from pesto_cli.errors import BadInputError, EnvironmentFailedError, unknown_name
from pesto_cli.files import PlacementFile, Profile, placement, sha256
from pesto_cli.files.profile import profile_json
from pesto_cli.learned.environment import Environment
from pesto_cli.learned.policy import Policy
from pesto_cli.learned.published import PUBLISHED
from pesto_cli.learned.training import CostsUs, State, Trainer, trained
from pesto_cli.learned.weights import Trained, settings_of
from pesto_cli.runtime.comparison import compared
from pesto_cli.runtime.interleaved import Turns
from pesto_cli.strategies import STRATEGIES
from pesto_cli.strategies.run import judged


@dataclass(frozen=True, eq=False)
class RealSteps:
    """Rewards from real steps, as in Spotlight's paper (Section 4).

    meta: the exported graph of the profile. cluster: the devices of its machine. feeds: data of the
        feeds, `FILE.npz` or `script.py:function`.
    steps: the number of timed steps of each placement; the median counts. A placement that does not
        fit in memory, or cannot run alone, counts as one that does not fit by its simulated step.
    on_measured: receives each placement that has run, and its median step in us.
    """

    meta: Any
    cluster: Cluster
    steps: int = 10
    feeds: str | None = None
    on_measured: Callable[[PlacementFile, float], None] = lambda placed, us: None

    def costs_us(
        self, policy: Policy, profile: Profile, solutions: Sequence[Solution]
    ) -> FloatArray:
        """Return the step times that count, in us, `[num_placements]`.

        Raises:
            BadInputError, EnvironmentFailedError: no placement that fits can run.
        """
        found = policy.costs_us(solutions)
        fitting = [index for index, each in enumerate(solutions) if not each.objective[0]]
        placed = [placement(profile, judged(policy.name, solutions[i], 0.0)) for i in fitting]
        for index, file, us in zip(fitting, placed, self._medians_us(placed), strict=True):
            if us is None:
                found[index] *= policy.out_of_memory_factor
            else:
                found[index] = us
                self.on_measured(file, us)
        return found

    def _medians_us(self, placed: Sequence[PlacementFile]) -> list[float | None]:
        """Return the median step of each placement; None if it cannot run but another one can."""
        if not placed:
            return []
        try:
            turns = Turns(self.steps, num_warm_up=1)
            runs = compared(self.meta, self.cluster, placed, turns, self.feeds)
        except (BadInputError, EnvironmentFailedError):
            if len(placed) == 1:
                raise
            alone = [self._median_alone_us(each) for each in placed]
            if all(us is None for us in alone):
                raise
            return alone
        return [run.times.median_us for run in runs]

    def _median_alone_us(self, placed: PlacementFile) -> float | None:
        try:
            return self._medians_us([placed])[0]
        except (BadInputError, EnvironmentFailedError):
            return None


@checked
def train(
    policy: str | Policy,
    profiles: Iterable[Profile],
    start: Trained | None = None,
    limits: Limits | None = None,
    num_placements: int | None = None,
    real: RealSteps | None = None,
    on_iteration: Callable[[Trained], None] = lambda trained: None,
) -> Trained:
    """Train a policy on profiles, which take turns.

    Args:
        policy: the name of a strategy that learns, or such a strategy: `Spotlight(units=32)`.
        profiles: of machines with the same number of devices.
        start: a trained policy to continue; its seed is kept.
        limits: time limit in seconds, which begins when TensorFlow is loaded; seed; threads for
            simulations; request to stop.
        num_placements: the number of placements to sample; then there is no time limit.
        real: takes the rewards from real steps, and not from the simulator. The only profile must
            be of this graph on these devices.
        on_iteration: called after each iteration with what is learned so far; `state.curve` has
            the mean step times.

    Returns:
        The trained policy. `save` writes it, and `solve(..., weights=path)` uses it.

    Raises:
        BadInputError: the strategy does not learn, a profile is given twice or leaves no choice,
            numbers of devices differ, real steps are not those of the profile, or a training that
            is to be deterministic has no number of placements.
        EnvironmentFailedError: a device failed during real steps.

    Example:
        >>> save("rnnlm.npz", train("spotlight", [profile], num_placements=1000))
    """
    policy, limits, profiles = policy_named(policy), limits or Limits(), list(profiles)
    if policy.weights is not None:
        raise BadInputError(
            f"policy {policy.name} has weights of its own, {policy.weights}; `start` was expected "
            "to have the weights that the training continues."
        )
    if limits.deterministic and num_placements is None:
        raise BadInputError(
            "a training with a time limit is not deterministic; num_placements was expected: the "
            "same number gives the same weights."
        )
    if start is not None:
        policy = start.configured(policy)
        start = replace(start, settings=settings_of(policy))
    environments = _environments(policy, profiles, is_measured=real is not None)
    costs_us = None if real is None else _measured(real, policy, profiles)
    num_devices = _num_devices(environments.values())
    if start is None:
        state = State.initial(policy, num_devices, limits.seed)
        start = Trained(policy.name, limits.seed, state, settings_of(policy))
    state = start.state_for(policy, num_devices)
    trainer = Trainer(policy, state.network, start.seed, costs_us)

    def iterated(state: State) -> None:
        on_iteration(replace(start, state=state, file_hash=""))

    state = trained(trainer, state, environments, limits, num_placements, iterated)
    return replace(start, state=state, file_hash="")


def policy_named(policy: str | Policy, settings: str | None = None) -> Policy:
    """Return the policy of a name.

    settings: whose settings it has (`learned.published`); None: the defaults.

    Raises:
        BadInputError: there is no such strategy, it does not learn, or it has no such settings.
    """
    names = [name for name, each in STRATEGIES.usable().items() if isinstance(each, Policy)]
    if isinstance(policy, str) and policy not in STRATEGIES:
        raise unknown_name("policy", policy, names)
    found = STRATEGIES.find(policy) if isinstance(policy, str) else policy
    if not isinstance(found, Policy):
        raise BadInputError(
            f"strategy {policy!r} does not learn; one of {', '.join(names)} was expected."
        )
    if settings is None:
        return found
    known = PUBLISHED.get(found.name, {})
    if settings not in known:
        has = f"only {' and '.join(known)}" if known else "the defaults alone"
        raise BadInputError(
            f"settings {settings!r}: {found.name} has {has}; leave them out for the defaults."
        )
    return known[settings]


def _measured(real: RealSteps, policy: Policy, profiles: Sequence[Profile]) -> CostsUs:
    """Return the function that measures solutions of the only profile."""
    if len(profiles) != 1:
        raise BadInputError(
            f"there are {len(profiles)} profiles for the real steps of one graph; one profile was "
            "expected."
        )
    check_same(profiles[0], real.meta, real.cluster)
    return partial(real.costs_us, policy, profiles[0])


def _num_devices(environments: Iterable[Environment]) -> int:
    """Return the number of devices of all machines."""
    found = sorted({each.problem.num_devices for each in environments})
    if len(found) > 1:
        raise BadInputError(
            f"the profiles are for machines with {' and '.join(map(str, found))} devices; machines "
            "with equal numbers of devices were expected: train a policy for each number."
        )
    return found[0]


def name_of_trials(profile: Profile, *, is_measured: bool) -> str:
    """Return the name of a profile's trials: its hash, and whether steps were real ones."""
    content_hash = profile.file_hash or sha256(json.dumps(profile_json(profile)).encode())
    return content_hash + (" measured" if is_measured else "")


def _environments(
    policy: Policy, profiles: Iterable[Profile], *, is_measured: bool
) -> Mapping[str, Environment]:
    """Return the environment of each profile by the name of its trials."""
    found: dict[str, Environment] = {}
    for number, profile in enumerate(profiles, start=1):
        name = name_of_trials(profile, is_measured=is_measured)
        if name in found:
            first = [*found].index(name) + 1
            raise BadInputError(
                f"profile {number} is profile {first} again; different profiles were expected."
            )
        check_can_fit(policy, profile.problem, f"profile {number}: ")
        found[name] = policy.environment(profile.problem)
        if not found[name].num_decisions:
            raise BadInputError(
                f"profile {number} has no op that may run on two devices; a profile of a machine "
                "with several devices was expected."
            )
    if not found:
        raise BadInputError("there is no profile to train on; one or more were expected.")
    return found
