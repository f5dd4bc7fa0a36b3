"""Texts for the causes of start times."""

from pesto_cli.evaluation.critical_path import Cause, CauseFinder, Reason


def cause_text(causes: CauseFinder, cause: Cause) -> str:
    """Return a text on what an op or a transfer waited for last."""
    problem, schedule = causes.problem, causes.schedule
    if cause.why is Reason.START:
        return "nothing: it is ready when the step starts"
    op = repr(problem.graph.names[cause.op])
    device = problem.machine.devices[int(schedule.device[cause.op])].name
    return {
        Reason.PREDECESSOR: f"the end of its predecessor {op}",
        Reason.TRANSFER: f"the transfer of an output of {op} from {device}",
        Reason.SIGNAL: f"the signal that {op} on {device} has ended",
        Reason.DEVICE: f"{device}, which ran {op}",
        Reason.ORDER: f"{op}, which precedes it in the order of {device}",
        Reason.LINK: f"the link, which carried an output of {op}",
        Reason.SENDER: f"{device}, which was busy when {op} had computed the tensor",
    }[cause.why]
