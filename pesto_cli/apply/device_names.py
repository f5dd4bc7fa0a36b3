"""Whether the devices that nodes are put on exist."""

from collections.abc import Collection

from pesto_cli.errors import BadInputError


def is_of(full: str, name: str) -> bool:
    """Whether a device's full name is one that `name` stands for, which may leave parts open."""
    return set(_parts(name)) <= set(_parts(full))


def check_devices(used: Collection[str], there: Collection[str], what: str) -> None:
    """Raise BadInputError if one of the devices used is not there; `what` begins the message."""
    for name in used:
        if not any(is_of(device, name) for device in there):
            raise BadInputError(
                f"{what}: the placement uses {name}, where one of {', '.join(there)} was expected:"
                " map the planned devices to these."
            )


def _parts(name: str) -> list[str]:
    return [part.lower() for part in name.split("/") if part]
