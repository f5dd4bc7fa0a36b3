"""Arrays in a zip file, as numpy reads them from `.npz`; equal arrays give equal files."""

import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np


def write_arrays(archive: zipfile.ZipFile, arrays: Mapping[str, Any]) -> None:
    """Add arrays to an archive, by their names; nothing is pickled."""
    for name, value in arrays.items():
        with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
            np.lib.format.write_array(member, value, allow_pickle=False)
