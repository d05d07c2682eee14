"""Scripts of the benchmarks, which are no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_benchmark(name: str) -> ModuleType:
    """A script of benchmarks/ as a module."""
    path = Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
    if str(path.parent) not in sys.path:  # scripts share a few modules
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look there for their types
    spec.loader.exec_module(module)
    return module
