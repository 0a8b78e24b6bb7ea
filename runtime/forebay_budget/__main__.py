"""`python -m forebay_budget`: the two commands on a bare interpreter."""

import sys

from forebay_budget.cli import main

sys.exit(main())
