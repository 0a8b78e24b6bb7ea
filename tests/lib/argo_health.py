"""How Argo CD reads an object's health: by the scripts that the docs give, in a real Lua 5.1."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from lupa.lua51 import LuaRuntime

SCRIPTS = Path(__file__).parents[2] / "docs/gitops/argocd-cm.yaml"
_HEALTHS = {"Healthy", "Progressing", "Degraded", "Suspended"}


def read_health(item: Mapping[str, Any]) -> tuple[str, str]:
    """Health and message that Argo CD shows for an object of one of Forebay's kinds."""
    group, kind = item["apiVersion"].partition("/")[0], item["kind"]
    scripts = yaml.safe_load(SCRIPTS.read_text())["data"]
    lua = LuaRuntime(register_eval=False, register_builtins=False)
    lua.globals().obj = lua.table_from(item, recursive=True)
    said = lua.execute(scripts[f"resource.customizations.health.{group}_{kind}"])
    if said["status"] not in _HEALTHS:
        raise ValueError(f"Argo CD knows no health {said['status']!r}")
    return said["status"], said["message"]
