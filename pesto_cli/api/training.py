"""Training of learned policies."""

from collections.abc import Callable, Iterable, Mapping

from pesto_cli.api.arguments import checked
from pesto_cli.data.limits import Limits
from pesto_cli.errors import BadInputError
from pesto_cli.files import Profile
from pesto_cli.learned.environment import Environment
from pesto_cli.learned.policy import Policy
from pesto_cli.learned.training import State, Trainer, trained
from pesto_cli.learned.weights import Trained
from pesto_cli.strategies import STRATEGIES


@checked
def train(
    policy: str | Policy,
    profiles: Iterable[Profile],
    start: Trained | None = None,
    limits: Limits | None = None,
    num_placements: int | None = None,
    on_iteration: Callable[[State], None] = lambda state: None,
) -> Trained:
    """Train a policy on profiles, which take turns.

    Args:
        policy: the name of a strategy that learns, or such a strategy: `Spotlight(units=32)`.
        profiles: of machines with the same number of devices.
        start: a trained policy to continue; its seed is kept.
        limits: time limit, which begins when TensorFlow is loaded; seed; threads for simulations;
            request to stop.
        num_placements: the number of placements to sample; then there is no time limit.
        on_iteration: called after each iteration with the state of the training, whose `curve`
            has the mean step times.

    Returns:
        The trained policy. `save` writes it, and `solve(..., weights=path)` uses it.

    Raises:
        BadInputError: the strategy does not learn, a profile is given twice or leaves no choice, or
            numbers of devices differ.

    Example:
        >>> save("rnnlm.npz", train("spotlight", [profile], num_placements=1000))
    """
    policy, limits = _learning(policy), limits or Limits()
    environments = _environments(policy, profiles)
    num_devices = _num_devices(environments.values())
    if start is None:
        start = Trained(policy.name, limits.seed, State.initial(policy, num_devices, limits.seed))
    state = start.state_for(policy, num_devices)
    trainer = Trainer(policy, state.network, start.seed)
    state = trained(trainer, state, environments, limits, num_placements, on_iteration)
    return Trained(policy.name, start.seed, state)


def _learning(policy: str | Policy) -> Policy:
    """Return the strategy of a name."""
    found = STRATEGIES.find(policy) if isinstance(policy, str) else policy
    if not isinstance(found, Policy):
        names = [name for name, each in STRATEGIES.usable().items() if isinstance(each, Policy)]
        raise BadInputError(
            f"strategy {policy!r} does not learn; one of {', '.join(names)} was expected."
        )
    return found


def _num_devices(environments: Iterable[Environment]) -> int:
    """Return the number of devices of all machines."""
    found = sorted({each.problem.num_devices for each in environments})
    if len(found) > 1:
        raise BadInputError(
            f"the profiles are for machines with {' and '.join(map(str, found))} devices; machines "
            "with equal numbers of devices were expected: train a policy for each number."
        )
    return found[0]


def _environments(policy: Policy, profiles: Iterable[Profile]) -> Mapping[str, Environment]:
    """Return the environment of each profile by its hash."""
    found: dict[str, Environment] = {}
    for profile in profiles:
        name = profile.file_hash or profile.graph_hash or ""
        if name in found:
            raise BadInputError(f"profile {name[:12]} is given twice; give each profile once.")
        found[name] = policy.environment(profile.problem)
        if not found[name].num_decisions:
            raise BadInputError(
                f"profile {name[:12]} has no op that may run on two devices; a profile of a "
                "machine with several devices was expected."
            )
    if not found:
        raise BadInputError("there is no profile to train on; one or more were expected.")
    return found
