"""Loaded by `kopf run` before the operator: sets what FOREBAY_TEST_CONSTANTS says, a JSON object of
`module.CONSTANT` to value, so that a test need not wait as long as production does."""

import importlib
import json
import os

for _place, _value in json.loads(os.environ["FOREBAY_TEST_CONSTANTS"]).items():
    _module, _, _name = _place.rpartition(".")
    _found = importlib.import_module(_module)
    getattr(_found, _name)  # a constant that is gone shall not be missed
    setattr(_found, _name, _value)
