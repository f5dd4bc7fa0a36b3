"""Changes of JSON, TOML and CSV, most of which keep them well formed."""

import copy
import gzip
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from fuzz import odd


def changed(rng: random.Random, tree: Any) -> Any:
    """Return a copy with one change or a few."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        places = list(_places(tree))
        if places:
            rng.choice(_CHANGES)(rng, places, *rng.choice(places))
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every (container, key), for some entries of each list."""
    if isinstance(tree, dict):
        entries: Any = list(tree.items())
    elif isinstance(tree, list):
        shown = range(len(tree)) if len(tree) < 12 else (*range(4), len(tree) // 2, len(tree) - 1)
        entries = [(index, tree[index]) for index in shown]
    else:
        return
    for key, inner in entries:
        yield tree, key
        yield from _places(inner)


def _replace(rng: random.Random, places: Any, container: Any, key: Any) -> None:
    container[key] = odd.value(rng)


def _drop(rng: random.Random, places: Any, container: Any, key: Any) -> None:
    if isinstance(container, dict) or key < len(container):
        del container[key]


def _double(rng: random.Random, places: Any, container: Any, key: Any) -> None:
    if isinstance(container, list):
        container.insert(key, copy.deepcopy(container[key]))
    else:
        container[f"{key}_2"] = copy.deepcopy(container[key])


def _swap(rng: random.Random, places: Any, container: Any, key: Any) -> None:
    """Swap with another value of the same type, so that the file is more likely well formed."""
    kind = type(container[key])
    alike = [(there, at) for there, at in places if type(there[at]) is kind]
    there, at = rng.choice(alike)
    # Copies, so that no value contains itself.
    here, other = copy.deepcopy(container[key]), copy.deepcopy(there[at])
    container[key], there[at] = other, here


def _number(rng: random.Random, places: Any, container: Any, key: Any) -> None:
    """Replace by a number of similar size (a bad index, a cycle, a tie), or by another text."""
    numbers = [(c, k) for c, k in places if type(c[k]) in (int, float)]
    there, at = rng.choice(numbers or [(container, key)])
    if type(there[at]) in (int, float):
        value = there[at]
        there[at] = rng.choice((value + 1, value - 1, -value, value * 10**6, rng.randrange(60)))
    else:
        there[at] = rng.choice(odd.TEXTS)


def _fill(rng: random.Random, places: Any, container: Any, key: Any) -> None:
    """Fill a column with one number, so that sums overflow."""
    numbers = [(c, k) for c, k in places if type(c[k]) in (int, float)]
    there, at = rng.choice(numbers or [(container, key)])
    value = rng.choice((*odd.NUMBERS, 2**45, 1e12, 1e308))
    if isinstance(there, list):
        there[:] = [value] * len(there)
        return
    for other, name in numbers:
        if name == at and isinstance(other, dict):
            other[name] = value


def _shuffle(rng: random.Random, places: Any, container: Any, key: Any) -> None:
    lists = [c[k] for c, k in places if isinstance(c[k], list)]
    if lists:
        rng.shuffle(rng.choice(lists))


def _grow(rng: random.Random, places: Any, container: Any, key: Any) -> None:
    lists = [c[k] for c, k in places if isinstance(c[k], list)]
    if lists:
        chosen = rng.choice(lists)
        chosen.extend(copy.deepcopy(chosen[:3]) or [odd.value(rng)])


_Change = Callable[[random.Random, Any, Any, Any], None]
_CHANGES: tuple[_Change, ...] = (
    *(_replace, _replace, _drop, _double, _swap, _number, _number, _number, _fill, _fill),
    *(_shuffle, _grow),
)


def json_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return a changed JSON file, which may be packed."""
    if rng.random() < 0.15:
        return odd.changed_bytes(rng, data)
    packed = data[:2] == b"\x1f\x8b"
    text = json.dumps(changed(rng, json.loads(gzip.decompress(data) if packed else data)))
    text = odd.written_out(rng, text)
    if rng.random() < 0.05:  # the same key twice
        text = text.replace('"ops":', '"ops": {}, "ops":', 1)
    return gzip.compress(text.encode(), 1, mtime=0) if packed else text.encode()


def toml_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return a changed TOML file."""
    import tomllib

    kind = rng.random()
    if kind < 0.15:
        return odd.changed_bytes(rng, data)
    if kind < 0.3:
        lines = data.decode().splitlines()
        (rng.shuffle if rng.random() < 0.3 else list.reverse)(lines)
        return "\n".join(lines).encode()
    tree = changed(rng, tomllib.loads(data.decode()))
    pairs = tree.items() if isinstance(tree, dict) else [("x", tree)]
    text = "".join(f"{_quoted(key)} = {_toml(entry)}\n" for key, entry in pairs)
    if rng.random() < 0.05:
        text = ".".join(["a"] * rng.choice((50, 99, 20_000))) + f" = 1\n{text}"
    return odd.written_out(rng, text).encode()


def _toml(entry: Any) -> str:
    if isinstance(entry, dict):
        return f"{{{', '.join(f'{_quoted(key)} = {_toml(each)}' for key, each in entry.items())}}}"
    if isinstance(entry, list):
        return f"[{', '.join(map(_toml, entry))}]"
    if isinstance(entry, bool):
        return str(entry).lower()
    return _quoted(entry or "") if isinstance(entry, str | None) else repr(entry)


def _quoted(text: str) -> str:
    return json.dumps(text)


def csv_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return a CSV file with changed cells, rows or columns."""
    if rng.random() < 0.15:
        return odd.changed_bytes(rng, data)
    rows = changed(rng, [line.split(",") for line in data.decode().splitlines()])
    if rng.random() < 0.3:
        cells = ('"open', '"a,b"', "1e400", "-0", "1_000", "0x10", "x" * 200_000, "\0", "9" * 5000)
        cell = rng.choice((*cells, "1e13", "-1e308", "1e-400", str(2**63), str(-(10**30))))
        rng.choice([row for row in rows if isinstance(row, list) and row] or [[""]])[0] = cell
    lines = (",".join(map(str, row)) if isinstance(row, list) else str(row) for row in rows)
    return "\n".join(lines).encode("utf-8", "surrogatepass")
