"""The CRD and the code that reads and writes its objects say the same."""

from pathlib import Path
from typing import Any

import yaml

from forebay_budget.sizing import Demand, Fit, size
from forebay_operator.kinds import INFERENCE_SERVICE
from played_node import SMALL_MODEL

CRD = yaml.safe_load((Path(__file__).parents[3] / "crds/inferenceservices.yaml").read_text())
VERSION = CRD["spec"]["versions"][0]
STATUS = VERSION["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]


def test_the_kind_is_the_one_that_is_watched() -> None:
    names = CRD["spec"]["names"]
    kind = INFERENCE_SERVICE
    assert (kind.group, kind.version) == (CRD["spec"]["group"], VERSION["name"])
    assert (kind.name, kind.plural) == (names["kind"], names["plural"])


def test_every_key_of_a_plan_has_its_place_in_the_status() -> None:
    fit = size(SMALL_MODEL, Demand(device="CPU"))
    assert isinstance(fit, Fit)
    assert set(fit.to_plan()) <= set(STATUS["plan"]["properties"])


def test_a_plan_is_of_the_types_that_the_status_takes() -> None:
    fit = size(SMALL_MODEL, Demand(device="CPU"))
    assert isinstance(fit, Fit)
    types: dict[str, Any] = {"integer": int, "string": str}
    plan, fields = fit.to_plan(), STATUS["plan"]["properties"]
    assert [name for name in plan if type(plan[name]) is not types[fields[name]["type"]]] == []
