"""The threads of libraries, which know the node's cores and not the pod's limit."""

from __future__ import annotations

import os

from forebay_kernels.usable_cpus import usable_cpus


def prepare_libraries() -> None:
    """Keep libraries' threads few and quiet; to be called before numpy and torch are imported.

    Idle threads of OpenMP sleep rather than spin: a decode step by torch's operators has hundreds
    of parallel regions, and where a neighbour takes a core for a moment, spinning at the end of
    each made a step 20 times as long; sleeping costs a tenth on an idle machine. Nobody has more
    threads than there are CPUs to use, and prompts are tokenised by the thread that asks.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Of OpenMP's users, and of OpenBLAS, which starts its threads as soon as numpy is imported.
    os.environ["OMP_NUM_THREADS"] = str(usable_cpus())
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
