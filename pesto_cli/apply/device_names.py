"""Check that the devices of a placement exist."""

from collections.abc import Collection

from pesto_cli.errors import BadInputError


def is_of(full: str, name: str) -> bool:
    """Return whether a full device name matches `name`, which may leave parts out."""
    return set(_parts(name)) <= set(_parts(full))


def check_devices(used: Collection[str], existing: Collection[str], what: str) -> None:
    """Raise BadInputError if one of the devices used does not exist; `what` begins the message."""
    for name in used:
        if not any(is_of(device, name) for device in existing):
            raise BadInputError(
                f"{what}: the placement uses {name}, where one of {', '.join(existing)} was"
                " expected: map the planned devices to these."
            )


def _parts(name: str) -> list[str]:
    return [part.lower() for part in name.split("/") if part]
