# SPDX-License-Identifier: MIT
"""What several tests of the sources need."""

import importlib.machinery
import importlib.util
import os
from pathlib import Path
from unittest import mock


def load_script(path):
    """A program of the sources as a module, whatever its name ends with."""
    loader = importlib.machinery.SourceFileLoader(Path(path).stem, str(Path(os.environ["KFORMER_SOURCE"], path)))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    with mock.patch("sys.dont_write_bytecode", True):
        loader.exec_module(module)
    return module
