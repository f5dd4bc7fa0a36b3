"""Append Markdown to the summary file of a CI job, such as the file in GITHUB_STEP_SUMMARY."""

from pathlib import Path

from pesto_cli.errors import EnvironmentFailedError
from pesto_cli.files.destination import destination

# GitHub refuses a step's summary above 1 MiB, and other programs may write to the same file.
MAX_BYTES = 512 * 1024


def append_summary(path: Path | str, markdown: str) -> None:
    """Append Markdown, with a limit on the size of the file.

    Lines beyond `MAX_BYTES` are left out; a last line says how many.

    Raises:
        BadInputError: see `destination`.
        EnvironmentFailedError: the file system refused to write.
    """
    try:
        with destination(path).opened("ab") as file:
            before = file.tell() if file.seekable() else 0
            file.write(_shortened(markdown, MAX_BYTES - before).encode() + b"\n")
    except OSError as error:
        raise EnvironmentFailedError(
            f"{path} could not be written: {error.strerror}; free space or choose another path."
        ) from error


def _shortened(markdown: str, max_bytes: int) -> str:
    lines = markdown.splitlines(keepends=True)
    num_bytes, kept = 0, 0
    for line in lines:
        num_bytes += len(line.encode())
        if num_bytes > max_bytes:
            break
        kept += 1
    text = "".join(lines[:kept])
    if kept == len(lines):
        return text
    unclosed = "\n</details>\n" * (text.count("<details>") - text.count("</details>"))
    size = len("".join(lines[kept:]).encode())
    return (
        f"{text}{unclosed}\n*{len(lines) - kept:,} more lines ({size:,} bytes) were left out: the "
        f"summary of a job is kept below {MAX_BYTES // 1024} KiB.*\n"
    )
