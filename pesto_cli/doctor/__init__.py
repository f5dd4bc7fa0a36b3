"""Whether all that pesto needs works here: what was found, and what to do where it does not."""

from pesto_cli.doctor.check import Check as Check
from pesto_cli.doctor.check import Verdict as Verdict
from pesto_cli.doctor.checks import checks as checks
