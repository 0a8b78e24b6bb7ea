"""`status.memory`: what a replica was planned to take and what it was measured to take, side by
side, and whether they are apart by more than a plan may be.

Pods measure once, when they warm up. The one that takes most is shown; a few bytes of difference
between it and its successor change nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from forebay_budget.quantity import format_bytes, parse_quantity, to_quantity
from forebay_operator.loads.news import is_same_memory
from forebay_operator.observed import DRAFT_TERMS, MEMORY_TERMS, Object
from forebay_operator.planning.pods import is_ready, load_of, template_hash
from forebay_operator.planning.rollout.revision import Revision
from forebay_operator.planning.situation import Manifest, Situation

TOLERATED_SHARE = 0.05
"""Of the total."""
TOLERATED_TERM_BYTES = 256 * 1024**2
TOLERATED_TERM_SHARE = 0.01
"""Of a term: a plan's quantities are rounded up to three digits."""

Bytes = Mapping[str, int]


@dataclass(frozen=True)
class MemoryVerdict:
    """How the measured memory compares with the planned."""

    is_as_planned: bool
    reason: str
    message: str


@dataclass(frozen=True)
class MemoryReport:
    """`status.memory`; None while nothing was measured."""

    status: Manifest | None = None
    look_again_seconds: float | None = None
    """When newer numbers may take the place of those that were told."""


def report_memory(situation: Situation, revision: Revision | None) -> MemoryReport:
    """What status shows: the newest numbers, or those that were told where none are news."""
    if revision is None or not revision.plan.keys() >= set(MEMORY_TERMS):
        return MemoryReport()  # a plan of an operator that did not write its terms down
    terms = (*MEMORY_TERMS, *(term for term in DRAFT_TERMS if term in revision.plan))
    planned = {term: parse_quantity(revision.plan[term]) for term in terms}
    told: Object = situation.previous.get("memory") or {}
    is_of_plan = bool(told) and _read(told, "planned") == planned
    measured = _measure(situation, revision, terms)
    if measured is None:
        return MemoryReport(dict(told) if is_of_plan else None)
    if is_of_plan and _is_same(told, measured):
        return MemoryReport(dict(told))
    if is_of_plan and not situation.may_refresh:
        return MemoryReport(dict(told), situation.seconds_to_refresh)
    return MemoryReport(_describe(planned, measured))


def judge_memory(report: Manifest, device: str) -> MemoryVerdict:
    """Compare what a report shows. A CPU's plan is a limit that must hold every peak, so there only
    more is apart from it."""
    planned, measured = _read(report, "planned"), _read(report, "measured")
    total, limit = sum(measured.values()), sum(planned.values())
    off = [term for term in planned if _is_off(planned[term], measured[term])]
    more = total > limit * (1 + TOLERATED_SHARE)
    less = total < limit * (1 - TOLERATED_SHARE)
    if device == "CPU":
        off, less = [term for term in off if measured[term] > planned[term] and more], False
    numbers = _compare(total, limit, device)
    if more:
        detail = _tell(off, planned, measured)
        return MemoryVerdict(False, "MoreThanPlanned", f"{numbers}{detail}; {_give_room(device)}.")
    if less:
        detail = _tell(off, planned, measured)
        return MemoryVerdict(False, "LessThanPlanned", f"{numbers}{detail}; {_USE_ROOM}.")
    if off:
        detail = _tell(off, planned, measured)
        return MemoryVerdict(False, "TermsDiffer", f"{numbers}{detail}; {_TERMS_DIFFER}.")
    return MemoryVerdict(True, "AsPlanned", f"{numbers}.")


_USE_ROOM = (
    "the rest lies idle: raise spec.engine.maxNumSeqs or spec.engine.maxModelLen, or lower "
    "spec.vram.budget"
)
_TERMS_DIFFER = (
    "the total is as planned, so nothing needs to change; the plan's formula is off for this model"
)


def _give_room(device: str) -> str:
    if device == "CPU":
        return (
            "the pod may be killed for it: raise spec.vram.budget, or lower spec.engine.maxNumSeqs "
            "or spec.engine.maxModelLen"
        )
    return (
        "the GPU may run out: lower spec.engine.gpuMemoryUtilization, spec.vram.budget or "
        "spec.engine.maxNumSeqs, and see that nothing else uses this GPU"
    )


def _measure(situation: Situation, revision: Revision, terms: tuple[str, ...]) -> Bytes | None:
    """Of the pod of this template that takes most; one that runs on the wrong device tells nothing
    about the plan."""
    wrong = "cpu" if situation.service.device == "GPU" else "cuda"
    loads = [
        load_of(pod, situation.observed.loads)
        for pod in situation.observed.pods
        if is_ready(pod) and template_hash(pod) == revision.template_hash
    ]
    known = [load.memory_bytes for load in loads if load is not None and load.device != wrong]
    most = max(filter(None, known), key=lambda found: sum(found.values()), default=None)
    return None if most is None else {term: most.get(term, 0) for term in terms}


def _is_same(told: Object, measured: Bytes) -> bool:
    before = _read(told, "measured")
    return all(is_same_memory(before[term], measured[term]) for term in measured)


def _describe(planned: Bytes, measured: Bytes) -> Manifest:
    return {
        "terms": [
            {
                "name": term,
                "planned": to_quantity(planned[term]),
                "measured": to_quantity(measured[term]),
            }
            for term in planned
        ],
        "planned": to_quantity(sum(planned.values())),
        "measured": to_quantity(sum(measured.values())),
    }


def _read(report: Object, side: str) -> dict[str, int]:
    return {one["name"]: parse_quantity(one[side]) for one in report["terms"]}


def _is_off(planned_bytes: int, measured_bytes: int) -> bool:
    tolerated = max(TOLERATED_TERM_BYTES, planned_bytes * TOLERATED_TERM_SHARE)
    return abs(measured_bytes - planned_bytes) > tolerated


def _compare(total: int, limit: int, device: str) -> str:
    where = "A pod" if device == "CPU" else "Each GPU of a replica"
    share = round(100 * (total - limit) / max(1, limit))
    apart = f" ({share:+} %)" if share else ""
    return (
        f"{where} was measured to hold {format_bytes(total)}, and {format_bytes(limit)} were "
        f"planned{apart}"
    )


def _tell(off: list[str], planned: Bytes, measured: Bytes) -> str:
    parts = [
        f"{term} {format_bytes(measured[term])} instead of {format_bytes(planned[term])}"
        for term in off
    ]
    return f": {', '.join(parts)}" if parts else ""
