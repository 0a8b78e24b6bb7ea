"""The chart as helm renders it, without a cluster; a rendering is kept for the session."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from api_server import BINARIES, ApiServer

CHART = Path(__file__).parents[2] / "charts/forebay"
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
OLDEST_KUBERNETES = "1.33"

Rule = tuple[str, str, str]
"""Verb, group and resource."""


class ChartError(ValueError):
    """helm refused; the message is what its user would read."""


def run_helm(*arguments: str | Path) -> str:
    """What helm prints; ChartError with what it complains of."""
    helm = BINARIES / "helm"
    if not helm.exists():
        raise RuntimeError(f"{helm} is missing: run `e2e/cluster/cluster build helm` first")
    done = subprocess.run([helm, *arguments], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise ChartError(done.stderr)
    return done.stdout


@cache
def render(*values: str, release: str = "forebay", namespace: str = "forebay-system") -> str:
    """The manifests of a release; `values` as `--set` takes them, or as JSON: `key=[...]`."""
    chosen = [f"--set-json={one}" if _is_json(one) else f"--set={one}" for one in values]
    where = ("--namespace", namespace, "--kube-version", OLDEST_KUBERNETES)
    return run_helm("template", release, CHART, *where, "--set=image.registry=localhost", *chosen)


def render_objects(
    *values: str, release: str = "forebay", namespace: str = "forebay-system"
) -> list[dict[str, Any]]:
    """The manifests, parsed."""
    text = render(*values, release=release, namespace=namespace)
    return [one for one in yaml.safe_load_all(text) if one]


def render_rights(*values: str, release: str = "forebay", namespace: str = "forebay-system") -> str:
    """The account and the roles alone, for a test's own operator."""
    objects = render_objects(*values, release=release, namespace=namespace)
    return yaml.safe_dump_all([one for one in objects if one["kind"] in RIGHTS])


def install_rights(server: ApiServer) -> None:
    """The CRDs, the operator's namespace, and what it may do."""
    server.kubectl("apply", "-f", str(CHART.parents[1] / "crds"))
    server.wait_for_kinds()
    server.kubectl("create", "namespace", "forebay-system")
    server.kubectl("apply", "-f", "-", stdin=render_rights())


def list_rules(*values: str) -> set[Rule]:
    """All that the operator's account may do, by any of its roles."""
    objects = render_objects(*values)
    bound = {
        (one["roleRef"]["kind"], one["roleRef"]["name"])
        for one in objects
        if one["kind"].endswith("Binding")
    }
    return {
        (verb, group, resource)
        for one in objects
        if (one["kind"], one["metadata"]["name"]) in bound
        for rule in one["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def _is_json(value: str) -> bool:
    return value.partition("=")[2][:1] in ("[", "{", '"')
