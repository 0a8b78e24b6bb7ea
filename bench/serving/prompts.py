"""Prompts of random words: alike for all servers of a round, and never seen before by a cache."""

from __future__ import annotations

import random

from serving.case import Case

_WORDS = """
about above across after again against air all almost along also always and animal answer any are
around ask away back be because before began below between big book both boy build but by call came
can car carry change children city close cold come could country cut day did different do does door
down draw each early earth eat end enough even every example eye face family far farm father feet
few find fire first fish follow food for form found four from garden gave get girl give go good
great green group grow had half hand hard has have head hear help her here high him his hold home
horse hot house how idea if important in into is it just keep kind king know land large last late
learn leave left letter life light like line list little live long look made make man many may mean
men might mile money moon more morning most mother mountain move much music must my name near need
never new next night no north not now number of off often old on once one only open or order other
our out over own page paper part people place plan plant play point power put question rain read
ready real red rest right river road rock room round rule run said same saw say school sea second
see seem sentence set she ship short should show side simple sing small snow so some song soon
south space stand star start state stay step still stone stop story street such sun sure table take
talk tell ten than that the their them then there these they thing think this those three through
time to together told too took top town travel tree true try turn two under until up us use very
voice walk wall want war warm watch water way we week well went were west what wheel when where
which while white who whole why wind with without wood word work world would write year you young
""".split()


def build_prompts(case: Case, seed: str) -> list[str]:
    """One prompt to warm up and one for each request; another seed gives others throughout."""
    chance = random.Random(f"{case.name} {seed}")
    shared = chance.choices(_WORDS, k=case.shared_tokens)
    return [
        " ".join(shared + chance.choices(_WORDS, k=case.prompt_tokens))
        for _ in range(1 + case.num_requests)
    ]
