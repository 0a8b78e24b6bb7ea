"""The CRDs and the code that reads and writes their objects say the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from forebay_operator.kinds import INFERENCE_SERVICE, VRAM_QUOTA, Kind

CRDS = Path(__file__).parents[3] / "crds"


@pytest.mark.parametrize("kind", [INFERENCE_SERVICE, VRAM_QUOTA], ids=lambda kind: kind.name)
def test_the_kind_is_the_one_that_is_watched(kind: Kind) -> None:
    spec = yaml.safe_load((CRDS / f"{kind.plural}.yaml").read_text())["spec"]
    assert (kind.group, kind.version) == (spec["group"], spec["versions"][0]["name"])
    assert (kind.name, kind.plural) == (spec["names"]["kind"], spec["names"]["plural"])


@pytest.mark.parametrize("kind", [INFERENCE_SERVICE, VRAM_QUOTA], ids=lambda kind: kind.name)
def test_nothing_has_a_default_but_a_status_that_nobody_has_written(kind: Kind) -> None:
    """What a person did not write stays absent, so that Git and the cluster are the same."""
    version = yaml.safe_load((CRDS / f"{kind.plural}.yaml").read_text())["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    assert schema["status"].pop("default") == {"observedGeneration": -1}
    assert list(find_defaults(schema)) == []


def find_defaults(schema: Any) -> Iterator[Any]:
    """Every `default` at any depth; no field of ours is called so."""
    if isinstance(schema, dict):
        yield from (one for name, one in schema.items() if name == "default")
    parts = schema.values() if isinstance(schema, dict) else schema
    for part in parts if isinstance(schema, dict | list) else ():
        yield from find_defaults(part)
