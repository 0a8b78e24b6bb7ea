"""forebay_budget runs where nothing is installed: in the inspection Job, and on a laptop."""

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
IMPORT_EVERYTHING = """
import importlib, json, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import forebay_budget
for module in pkgutil.iter_modules(forebay_budget.__path__):
    if module.name != "__main__":
        importlib.import_module(f"forebay_budget.{module.name}")
known = sys.stdlib_module_names | {"forebay_budget", "__main__"}
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules} - known)))
"""


def test_every_module_of_the_budget_imports_only_the_standard_library() -> None:
    bare = (sys.executable, "-I", "-S", "-c", IMPORT_EVERYTHING, REPOSITORY / "runtime")
    ended = subprocess.run(bare, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == []
