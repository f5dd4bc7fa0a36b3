"""Sentences that compare measured links with the execution model."""

from collections.abc import Iterator, Sequence

from pesto_cli.files import CommFit
from pesto_cli.printable import printable

# The error of the model is printed if it is larger.
TOLERANCE = 0.25
# The overhead at the sender and the receiver is printed for a transfer of this size.
OVERHEAD_AT_BYTES = 100_000


def comm_checks(fits: Sequence[CommFit]) -> str:
    """Return some lines for each kind of link that was measured on a machine; empty for others."""
    return "\n".join(printable(line) for fit in fits for line in _lines(fit))


def _lines(fit: CommFit) -> Iterator[str]:
    link = f"{fit.src_kind} -> {fit.dst_kind}" + (f" ({fit.channel})" if fit.channel else "")
    if fit.signal_us is not None:
        yield f"{link}: a control edge takes {fit.signal_us:.1f} us"
    if fit.has_overhead:
        sender, receiver = (f"{delay_us:.0f} us" for delay_us in _delays_us(fit))
        yield (
            f"{link}: a transfer of {OVERHEAD_AT_BYTES // 1000} kB delays an op that runs on the "
            f"sender by {sender}, and one on the receiver by {receiver}"
        )
    if fit.comm.wait_us > 0:
        yield (
            f"{link}: a sender or receiver that computes delays a tensor by up to "
            f"{fit.comm.wait_us / 1e3:.1f} ms"
        )
    if fit.two_at_once is not None:
        yield (
            f"{link}: two transfers at once take {fit.two_at_once:.2f} times as long as one; "
            f"{_verdict(fit.two_at_once, 2)}"
        )
    if fit.both_ways is not None:
        both = (
            f"{link}: two transfers in opposite directions take {fit.both_ways:.2f} times as long "
            "as one"
        )
        if fit.channel:
            yield f"{both}; {_verdict(fit.both_ways, 1)}"
        elif fit.directions_share_channel:
            yield f"{both}, so the two directions share one channel; {_verdict(fit.both_ways, 2)}"
        else:
            yield f"{both}, so each direction has its own channel; {_verdict(fit.both_ways, 1)}"


def _delays_us(fit: CommFit) -> tuple[float, float]:
    """Return the delay in us of an op on the sender, and of one on the receiver, by a transfer."""
    comm = fit.comm
    return (
        comm.sender_us + comm.sender_us_per_byte * OVERHEAD_AT_BYTES,
        comm.receiver_us + comm.receiver_us_per_byte * OVERHEAD_AT_BYTES,
    )


def _verdict(measured: float, modelled: int) -> str:
    error = modelled / measured - 1
    return f"the model assumes {modelled}" + (f" ({error:+.0%})" if abs(error) > TOLERANCE else "")
