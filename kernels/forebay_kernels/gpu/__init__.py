"""The operations as Triton kernels: one op a file, the kernel first and its launcher below it.

Imported only where `choice` says that they run. A launcher has the name, the arguments and the
meaning of the operation in `portable` or `reference` that it stands for. Launch parameters come
from `launch_tables`; nothing tunes itself while it serves. Each file's `variants` names every
compilation that a configuration can reach, so that warm-up (`compiling`) has all of them and none
is met later.
"""

import os

# Whether a product and a sum are rounded once is to depend on no version of Triton.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
