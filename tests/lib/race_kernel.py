"""A kernel that runs the sampler's race for many keys at once; imported where Triton interprets."""

import triton
import triton.language as tl

from forebay_kernels.gpu.sampling.race import race


@triton.jit
def winners(chances, keys, out, NUM_NAMES: tl.constexpr, NUM_KEYS: tl.constexpr):
    """Shapes: chances [NUM_NAMES] float32; keys [NUM_KEYS] int64; out [NUM_KEYS] int32."""
    rows = tl.arange(0, NUM_KEYS)
    key = tl.load(keys + rows)
    leader = tl.full([NUM_KEYS], -1.0, tl.float32)
    first = tl.full([NUM_KEYS], 0, tl.int32)
    for name in range(NUM_NAMES):
        names = tl.full([NUM_KEYS], 0, tl.int32) + name
        came = race(tl.load(chances + names), names, key)
        first = tl.where(came > leader, names, first)
        leader = tl.maximum(leader, came)
    tl.store(out + rows, first)
