"""Write a placement as the two files that the Pesto authors' version of TensorFlow reads.

Format: README.md of github.com/PACELab/TF-Pesto. Each file is a list of objects with one entry
each.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from pesto_cli.apply.edits import Changes
from pesto_cli.files import atomic_write


def write_tf_pesto(folder: Path, changes: Changes) -> None:
    """Write changes to `part.json` (node -> device) and `cdep.json` (node -> predecessors).

    Raises:
        BadInputError: the folder does not exist.
    """
    parts = [{node: device} for node, device in changes.device.items()]
    dependencies = [{node: list(sources)} for node, sources in changes.waits_for.items()]
    atomic_write(folder / "part.json", _one_a_line(parts))
    atomic_write(folder / "cdep.json", _one_a_line(dependencies))


def _one_a_line(entries: Sequence[object]) -> bytes:
    return ("[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n").encode()
