"""Python's search for cyclic garbage, at a pace that suits a heap of thousands of API objects.

They hold no cycles and come and go all the time, so at Python's own pace the search through them
would be a sixth of the operator's work. It is made seldom instead, and wholly now and then: what
tasks and tracebacks leave behind is little, but it would add up.
"""

import asyncio
import gc

THRESHOLDS = (50_000, 20, 1_000)
SWEEP_SECONDS = 120.0


async def sweep_garbage() -> None:
    """Search at this process's own pace, until cancelled."""
    gc.set_threshold(*THRESHOLDS)
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        gc.collect()
