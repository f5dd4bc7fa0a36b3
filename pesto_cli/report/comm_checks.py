"""Where measured links keep to the execution model, and where they do not, in words."""

from collections.abc import Iterator, Sequence

from pesto_cli.files import CommFit

# Where the model is further off, it is said by how much.
TOLERANCE = 0.25


def comm_checks(fits: Sequence[CommFit]) -> str:
    """Some lines a kind of link, for those that were timed on a machine; else nothing."""
    return "\n".join(line for fit in fits for line in _lines(fit))


def _lines(fit: CommFit) -> Iterator[str]:
    link = f"{fit.src_kind} -> {fit.dst_kind}" + (f" ({fit.channel})" if fit.channel else "")
    if fit.signal_us is not None:
        yield f"{link}: a control edge takes {fit.signal_us:.1f} us"
    if fit.two_at_once is not None:
        yield (
            f"{link}: two transfers at once take {fit.two_at_once:.2f} times as long as one; "
            f"{_verdict(fit.two_at_once, 2)}"
        )
    if fit.both_ways is not None:
        both = f"{link}: one each way at once {fit.both_ways:.2f} times"
        if fit.channel:
            yield f"{both}; {_verdict(fit.both_ways, 1)}"
        elif fit.directions_wait:
            yield f"{both}, so the two directions share one channel; {_verdict(fit.both_ways, 2)}"
        else:
            yield f"{both}, so each direction has its own channel; {_verdict(fit.both_ways, 1)}"


def _verdict(measured: float, modelled: int) -> str:
    error = modelled / measured - 1
    return f"the model has {modelled}" + (f" ({error:+.0%})" if abs(error) > TOLERANCE else "")
