"""The CRDs and the code that reads and writes their objects say the same."""

from pathlib import Path

import pytest
import yaml

from forebay_operator.kinds import INFERENCE_SERVICE, VRAM_QUOTA, Kind

CRDS = Path(__file__).parents[3] / "crds"


@pytest.mark.parametrize("kind", [INFERENCE_SERVICE, VRAM_QUOTA], ids=lambda kind: kind.name)
def test_the_kind_is_the_one_that_is_watched(kind: Kind) -> None:
    spec = yaml.safe_load((CRDS / f"{kind.plural}.yaml").read_text())["spec"]
    assert (kind.group, kind.version) == (spec["group"], spec["versions"][0]["name"])
    assert (kind.name, kind.plural) == (spec["names"]["kind"], spec["names"]["plural"])
