"""Whether all that pesto needs works here: what was found, and what to do where it does not."""

from pesto_cli.doctor.check import Finding as Finding
from pesto_cli.doctor.check import Outcome as Outcome
from pesto_cli.doctor.checks import checks as checks
