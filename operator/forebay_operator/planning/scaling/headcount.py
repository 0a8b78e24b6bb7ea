"""How many pods the Deployment is told to have: the replicas, successors, and who differs."""

from dataclasses import dataclass

from forebay_operator.observed import Contest
from forebay_operator.planned import Note
from forebay_operator.planning.scaling.contest import rule_contest
from forebay_operator.planning.scaling.successors import plan_successors
from forebay_operator.planning.situation import Situation


@dataclass(frozen=True)
class Headcount:
    """The numbers of one decision."""

    num_wanted: int
    """What this service needs now."""
    num_told: int
    """What the Deployment gets, which an autoscaler's word may differ from for a while."""
    num_successors: int = 0
    contest: Contest | None = None
    notes: tuple[Note, ...] = ()
    look_again_seconds: float | None = None


def count_heads(situation: Situation, num_replicas: int) -> Headcount:
    """From the replicas that scaling decided."""
    successors = plan_successors(situation, num_replicas)
    num_wanted = num_replicas + successors.num
    ruling = rule_contest(situation, num_wanted)
    return Headcount(
        num_wanted,
        ruling.num_replicas,
        successors.num,
        ruling.contest,
        (*successors.notes, *ruling.notes),
        ruling.look_again_seconds,
    )
