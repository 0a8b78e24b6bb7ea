"""The CRD and the code that reads and writes its objects say the same."""

from pathlib import Path

import yaml

from forebay_operator.kinds import INFERENCE_SERVICE

CRD = yaml.safe_load((Path(__file__).parents[3] / "crds/inferenceservices.yaml").read_text())
VERSION = CRD["spec"]["versions"][0]


def test_the_kind_is_the_one_that_is_watched() -> None:
    names = CRD["spec"]["names"]
    kind = INFERENCE_SERVICE
    assert (kind.group, kind.version) == (CRD["spec"]["group"], VERSION["name"])
    assert (kind.name, kind.plural) == (names["kind"], names["plural"])
