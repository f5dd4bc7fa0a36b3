"""Odd values and damaged bytes, which no program writes."""

import random
from typing import Any

TEXTS = (
    "",
    " ",
    "x" * 100_000,
    "nul\0in it",
    "Größe/日本語 \U0001f355",
    "\ud800",  # a lone surrogate, which UTF-8 cannot encode
    "the other half \udfff, and \udc00\ud83d in the wrong order",
    "../../etc/passwd",
    "/job:worker/task:99/device:TPU:7",
    "*[",
    "-1",
    "nan",
    "^",
    ":0",
    "a:b:c",
)
NUMBERS = (
    *(0, -1, 1, 2**31, 2**45, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, 10**400),
    *(-(2**31), -(2**63), -(2**63) - 1, -(2**64), -(10**30), -(10**400)),
    *(0.5, -0.0, 5e-324, 1e12, 1e15, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf")),
)
# Placeholders for values that Python's writers refuse: see `written_out`.
NESTED, DIGITS = "@nested@", "@digits@"


def value(rng: random.Random) -> Any:
    """Return an odd value of any type of JSON."""
    nested: Any = 1
    for _ in range(rng.choice((1, 3, 90))):
        nested = [nested]
    other = (
        *(None, True, False, [], {}, {"": None}, nested, [[], {}], list(range(50))),
        *(NESTED, NESTED, DIGITS, DIGITS),
    )
    return rng.choice((rng.choice(NUMBERS), rng.choice(TEXTS), rng.choice(other)))


def written_out(rng: random.Random, text: str) -> str:
    """Replace placeholders in JSON or TOML by deep nesting and by numbers of many digits."""
    depth = rng.choice((99, 100, 101, 300, 900, 980, 20_000))
    begin, end = rng.choice((("[", "]"), ('{"a": ', "}"), ("{a = ", "}")))
    digits = rng.choice(("9" * 4300, "9" * 5000, "-" + "9" * 5000, "0x" + "f" * 6000))
    text = text.replace(f'"{NESTED}"', f"{begin * depth}1{end * depth}")
    return text.replace(f'"{DIGITS}"', digits)


def changed_bytes(rng: random.Random, data: bytes) -> bytes:
    """Change bytes as transports and disks do, or return another file."""
    length = len(data)
    start = rng.randrange(length + 1)
    stop = min(length, start + rng.choice((1, 8, 64, 4096)))

    def flipped() -> bytes:
        changed = bytearray(data)
        for _ in range(rng.choice((1, 4, 32))):
            if changed:
                changed[rng.randrange(length)] ^= 1 << rng.randrange(8)
        return bytes(changed)

    return rng.choice(
        (
            flipped,
            flipped,
            lambda: data[:start],
            lambda: data[start:],
            lambda: data[:start] + data[stop:],
            lambda: data[:stop] + data[start:],
            lambda: data[:start] + bytes(stop - start) + data[stop:],
            lambda: data[:start] + rng.randbytes(stop - start) + data[stop:],
            lambda: data + data,
            lambda: b"",
            lambda: rng.randbytes(200),
            lambda: "größe\n".encode("latin-1") * 3,
            lambda: data.decode("latin-1").encode("utf-16"),
            lambda: b"\xef\xbb\xbf" + data,
            lambda: b"\x1f\x8b" + data,
            lambda: b"[" * 100_000,
            lambda: b'{"a":' * 100_000,
        )
    )()
