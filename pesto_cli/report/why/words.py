"""Causes in words."""

from pesto_cli.evaluation.causes import Cause, Causes, Why


def cause_text(causes: Causes, cause: Cause) -> str:
    """What something waited for last, in words."""
    problem, schedule = causes.problem, causes.schedule
    if cause.why is Why.START:
        return "nothing: it is there as the step starts"
    op = repr(problem.graph.names[cause.op])
    device = problem.machine.devices[int(schedule.device[cause.op])].name
    return {
        Why.PREDECESSOR: f"the end of {op}, which comes before it",
        Why.TRANSFER: f"the transfer of an output of {op} from {device}",
        Why.SIGNAL: f"the signal that {op} on {device} has ended",
        Why.DEVICE: f"{device}, which ran {op}",
        Why.ORDER: f"{device}, whose order has {op} first",
        Why.LINK: f"the link, which carried an output of {op}",
        Why.SENDER: f"{device}, which computed when {op} had made the tensor",
    }[cause.why]
