"""What one InferenceService needs: every rule of the operator lives here, each a pure function.

`reconcile` calls `plan`; nothing in here reads a clock, a cluster or a file. `decision` runs the
steps: `inspection`, `sizing`, `rollout`, `quota`, `scaling` and `draining`; `outlook` gathers what
they found, for `conditions` and `status` to tell. `nodes` reads what there is to run on, `children`
builds the manifests, `causes` finds the sentence for what fails.
"""

from forebay_operator.planning.decision import plan

__all__ = ["plan"]
