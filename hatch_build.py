"""Builds the CPU's kernels into the wheel; a wheel without them runs on torch's operators."""

from __future__ import annotations

import sys
import sysconfig
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface[Any]):
    """What hatchling calls before it gathers a wheel's files, in an editable install too."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library, if there is a compiler."""
        del version
        path = Path(self.root) / "kernels" / "forebay_kernels" / "cpu" / "build.py"
        # The operator's image is built of its own sources alone.
        if self.target_name != "wheel" or not path.exists():
            return
        build = _load_build(path)
        try:
            library = build.build()
        except build.CannotBuild as exc:
            print(f"forebay is built without its CPU kernels. {exc}", file=sys.stderr)
            return
        build_data["artifacts"].append(str(library.relative_to(self.root)))
        # It is called through a C interface, so that any Python 3 takes it.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False


def _load_build(path: Path) -> Any:
    """build.py, by its path: the package is not installed yet."""
    spec = spec_from_file_location("forebay_native_build", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
