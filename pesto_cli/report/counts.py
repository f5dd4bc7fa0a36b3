"""Numbers of things as text."""


def count_text(count: int, noun: str) -> str:
    """Return a number with its noun, such as `1 step` or `2 steps`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
