"""The names of sources that are no files: models of the zoo, and functions of scripts."""

ZOO = "zoo:"


def is_of_zoo(source: str) -> bool:
    """Return whether a source is a model of the zoo."""
    return source.lower().startswith(ZOO)


def is_function(source: str) -> bool:
    """Return whether a source is a function of a script: `script.py:function`."""
    script, colon, _ = source.rpartition(":")
    return bool(colon) and script.endswith(".py")
