"""Where measured links keep to the execution model, and where they do not, in words."""

from collections.abc import Iterator, Sequence

from pesto_cli.files import CommFit
from pesto_cli.printable import printable

# Where the model is further off, it is said by how much.
TOLERANCE = 0.25
# What a transfer costs the devices at its ends is said for one of this size.
LOSS_AT_BYTES = 100_000


def comm_checks(fits: Sequence[CommFit]) -> str:
    """Some lines a kind of link, for those that were timed on a machine; else nothing."""
    return "\n".join(printable(line) for fit in fits for line in _lines(fit))


def _lines(fit: CommFit) -> Iterator[str]:
    link = f"{fit.src_kind} -> {fit.dst_kind}" + (f" ({fit.channel})" if fit.channel else "")
    if fit.signal_us is not None:
        yield f"{link}: a control edge takes {fit.signal_us:.1f} us"
    if fit.has_overhead:
        sender, receiver = (f"{lost_us:.0f} us" for lost_us in _lost_us(fit))
        yield (
            f"{link}: a transfer of {LOSS_AT_BYTES // 1000} kB costs a sender that computes "
            f"meanwhile {sender}, and a receiver {receiver}"
        )
    if fit.comm.wait_us > 0:
        yield (
            f"{link}: an end that computes keeps a tensor waiting for up to "
            f"{fit.comm.wait_us / 1e3:.1f} ms"
        )
    if fit.two_at_once is not None:
        yield (
            f"{link}: two transfers at once take {fit.two_at_once:.2f} times as long as one; "
            f"{_verdict(fit.two_at_once, 2)}"
        )
    if fit.both_ways is not None:
        both = f"{link}: one each way at once {fit.both_ways:.2f} times"
        if fit.channel:
            yield f"{both}; {_verdict(fit.both_ways, 1)}"
        elif fit.directions_share_channel:
            yield f"{both}, so the two directions share one channel; {_verdict(fit.both_ways, 2)}"
        else:
            yield f"{both}, so each direction has its own channel; {_verdict(fit.both_ways, 1)}"


def _lost_us(fit: CommFit) -> tuple[float, float]:
    """By how much later a computing sender, and receiver, is done, in us."""
    comm = fit.comm
    return (
        comm.sender_us + comm.sender_us_per_byte * LOSS_AT_BYTES,
        comm.receiver_us + comm.receiver_us_per_byte * LOSS_AT_BYTES,
    )


def _verdict(measured: float, modelled: int) -> str:
    error = modelled / measured - 1
    return f"the model has {modelled}" + (f" ({error:+.0%})" if abs(error) > TOLERANCE else "")
