"""Loaded by `kopf run` before the operator.

It sets what FOREBAY_TEST_CONSTANTS says, a JSON object of `module.CONSTANT` to value, so that a
test need not wait as long as production does; and where FOREBAY_TEST_CLOCK names a file, it moves
the operator's wall clock by the seconds in it. FOREBAY_TEST_PLUGIN names one more module to load.
"""

import importlib
import json
import os
import sys
from datetime import datetime, timedelta, tzinfo
from pathlib import Path


class ShiftedDatetime(datetime):
    """A wall clock that somebody has set."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "ShiftedDatetime":
        shifted = datetime.now(tz) + timedelta(seconds=float(Path(_clock).read_text()))
        return cls.combine(shifted.date(), shifted.timetz())


for _place, _value in json.loads(os.environ["FOREBAY_TEST_CONSTANTS"]).items():
    _module, _, _name = _place.rpartition(".")
    _found = importlib.import_module(_module)
    getattr(_found, _name)  # a constant that is gone shall not be missed
    setattr(_found, _name, _value)

_clock = os.environ.get("FOREBAY_TEST_CLOCK", "")
if _clock:
    importlib.import_module("forebay_operator.controller")
    for _name, _loaded in list(sys.modules.items()):
        if _name.startswith("forebay_operator.") and hasattr(_loaded, "datetime"):
            setattr(_loaded, "datetime", ShiftedDatetime)  # noqa: B010

if os.environ.get("FOREBAY_TEST_PLUGIN"):
    importlib.import_module(os.environ["FOREBAY_TEST_PLUGIN"])
