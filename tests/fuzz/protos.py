"""Changes of protocol buffers that keep them well formed."""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from fuzz import odd

# Only this many entries of a list are visited.
SHOWN = 400
Place = tuple[Any, Any]


def changed(rng: random.Random, message: Any) -> Any:
    """Return a copy with one change or a few."""
    copy = type(message)()
    copy.CopyFrom(message)
    for _ in range(rng.choice((1, 1, 1, 2, 6))):
        places = list(_places(copy))
        if not places:
            break
        # Choose the field first, because a few frequent fields have most of the places.
        fields = sorted({field.full_name for _, field in places})
        chosen = rng.choice(fields)
        owner, field = rng.choice([place for place in places if place[1].full_name == chosen])
        _change(rng, owner, field, places)
    return copy


def _places(message: Any, depth: int = 0) -> Iterator[Place]:
    """Yield every (message, field) that is set."""
    for field, value in message.ListFields():
        yield message, field
        if field.type != field.TYPE_MESSAGE or depth > 12:
            continue
        if _is_map(field):
            inner = value.values() if hasattr(value, "GetEntryClass") else []
            inner = [each for each in inner if hasattr(each, "ListFields")]
        else:
            inner = value if field.is_repeated else [value]
        inner = list(inner)
        for each in inner[:SHOWN]:
            yield from _places(each, depth + 1)


def _is_map(field: Any) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _change(rng: random.Random, owner: Any, field: Any, places: list[Place]) -> None:
    value = getattr(owner, field.name)
    if rng.random() < 0.15:
        owner.ClearField(field.name)
    elif _is_map(field):
        _change_map(rng, value)
    elif field.is_repeated:
        _change_list(rng, owner, field, places)
    elif field.type == field.TYPE_MESSAGE:
        others = [
            getattr(there, same.name)
            for there, same in places
            if same.type == field.TYPE_MESSAGE
            and not same.is_repeated
            and same.message_type is field.message_type
        ]
        other = type(value)()
        other.CopyFrom(rng.choice(others))
        value.CopyFrom(other)
    else:
        _assign(lambda new: setattr(owner, field.name, new), _scalar(rng, field, places, value))


def _change_map(rng: random.Random, values: Any) -> None:
    key = rng.choice(sorted(values))
    if rng.random() < 0.5:
        del values[key]
    elif hasattr(values[key], "CopyFrom"):
        values[key].CopyFrom(values[rng.choice(sorted(values))])
    else:
        values[key] = values[rng.choice(sorted(values))]


def _change_list(rng: random.Random, owner: Any, field: Any, places: list[Place]) -> None:
    values = getattr(owner, field.name)
    index = rng.randrange(len(values))
    kind = rng.randrange(4)
    if kind == 0:
        del values[index]
    elif field.type == field.TYPE_MESSAGE:
        if kind == 1:
            values.add()
        elif kind == 2:
            values.add().CopyFrom(values[index])
        else:
            moved = type(values[index])()
            moved.CopyFrom(values[index])
            del values[index]
            values.add().CopyFrom(moved)
    elif kind == 1:
        values.append(values[index])
    else:
        new = _scalar(rng, field, places, values[index])
        _assign(lambda given: values.__setitem__(index, given), new)


def _scalar(rng: random.Random, field: Any, places: list[Place], old: Any) -> Any:
    """Return another value: one from elsewhere in the message (a reference), or an odd one."""
    if field.type == field.TYPE_ENUM or isinstance(old, bool):
        return rng.choice((0, 1, 2, 3, 7, 9, 20, 21, 101, 9999, -1, not old))
    if isinstance(old, int | float):
        near = (old + 1, old - 1, -old, rng.randrange(100), old * 10**6)
        return rng.choice((rng.choice(near), rng.choice(odd.NUMBERS)))
    if isinstance(old, bytes):
        return odd.changed_bytes(rng, old)
    if rng.random() < 0.6:
        texts = _texts(places)
        chosen = rng.choice(texts) if texts else ""
        return rng.choice((chosen, f"^{chosen}", f"{chosen}:1", f"{chosen}:99", chosen))
    return rng.choice(odd.TEXTS)


def _texts(places: list[Place]) -> list[str]:
    return [
        getattr(owner, field.name)
        for owner, field in places
        if field.type == field.TYPE_STRING and not field.is_repeated
    ]


def _assign(put: Callable[[Any], None], new: Any) -> None:
    with suppress(ValueError, TypeError, OverflowError):  # a protocol buffer cannot hold it
        put(new)
