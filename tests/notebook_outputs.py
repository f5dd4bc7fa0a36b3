"""Run the notebooks of examples/ and store their outputs.

    python tests/notebook_outputs.py

Times of execution and metadata of the machine are left out, because they differ between runs.
"""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parent.parent / "examples"


def main() -> None:
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        resources = {"metadata": {"path": str(EXAMPLES)}}
        NotebookClient(notebook, resources=resources, record_timing=False).execute()
        notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
