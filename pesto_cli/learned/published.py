"""Policies with the published sizes and settings. The defaults are smaller, to run on two cores."""

from collections.abc import Mapping

from pesto_cli.learned import heterog, spotlight
from pesto_cli.learned.policy import Policy

PUBLISHED: Mapping[str, Mapping[str, Policy]] = {
    "spotlight": {"paper": spotlight.PAPER},
    "heterog": {"paper": heterog.PAPER, "program": heterog.PROGRAM},
}
"""By the name of the policy, and by whose settings they are: the paper's or the program's."""
