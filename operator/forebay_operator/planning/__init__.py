"""What one InferenceService needs: every rule of the operator lives here, each a pure function.

`reconcile` calls `plan`; nothing in here reads a clock, a cluster or a file. `decision` runs the
steps, one file each; `children` builds the manifests, `causes` finds the sentence for what fails.
"""

from forebay_operator.planning.decision import plan

__all__ = ["plan"]
