# SPDX-License-Identifier: MIT
"""The stored result files, which scripts/make_result_samples made."""

import gzip
from pathlib import Path

from kformer_results import schema

FOLDER = Path(__file__).parent / "samples"
NEWEST = schema.versions()[-1]


def contents(kind: str, version: str = NEWEST) -> bytes:
    """The sample of a kind."""
    return gzip.decompress((FOLDER / version / f"{kind}.h5.gz").read_bytes())


def unpack(folder: Path, kind: str, version: str = NEWEST) -> Path:
    """The same as a file in `folder`."""
    path = folder / f"{kind}.h5"
    path.write_bytes(contents(kind, version))
    return path


def kinds(version: str = NEWEST) -> list[str]:
    """Those that have a sample."""
    return sorted(path.name.removesuffix(".h5.gz") for path in (FOLDER / version).iterdir())
