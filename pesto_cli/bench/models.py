"""The models of experiments: profiles in a folder, identified by the hash of their content."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from pesto_cli.errors import BadInputError
from pesto_cli.files import Profile, read_bytes, read_profile, sha256, write_profile

ENDINGS = (".profile.json.gz", ".profile.json", ".json.gz", ".json")


@dataclass(frozen=True)
class BenchModel:
    """A profile on disk. content_hash: SHA-256 of the uncompressed file."""

    name: str
    path: Path
    content_hash: str

    def profile(self) -> Profile:
        """Read the profile.

        Raises:
            BadInputError: the file has changed since its hash was computed.
        """
        profile = _read(self.path, self.content_hash)
        if profile.file_hash != self.content_hash:
            raise BadInputError(
                f"{self.path} has changed since this run began; run the command again, and do not "
                "change the file meanwhile."
            )
        return profile


@lru_cache(maxsize=2)
def _read(path: Path, content_hash: str) -> Profile:
    return read_profile(path)


@dataclass(frozen=True)
class Models:
    """Models by name (`NAME.profile.json` in a folder of profiles) or by the path of a profile.

    make: makes the profile of a model that the folder lacks.
    """

    folder: Path
    make: Callable[[str], Profile]
    _known: dict[str, BenchModel] = field(default_factory=dict)

    def is_made(self, name: str) -> bool:
        """Whether the profile of a model exists."""
        return self._path(name).exists()

    def model(self, name: str) -> BenchModel:
        """Return a model by its name or path (`*.json`); make its profile if it does not exist."""
        if name not in self._known:
            path = self._path(name)
            if not path.exists() and not name.endswith(ENDINGS):
                write_profile(path, self.make(name))
            self._known[name] = BenchModel(_stem(path), path.resolve(), sha256(read_bytes(path)))
        return self._known[name]

    def _path(self, name: str) -> Path:
        return Path(name) if name.endswith(ENDINGS) else self.folder / f"{name}.profile.json"


def _stem(path: Path) -> str:
    ending = next(ending for ending in ENDINGS if path.name.endswith(ending))
    return path.name.removesuffix(ending)
