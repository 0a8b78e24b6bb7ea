"""Parts of cpu_kernels.py: the machine's limits, and what is held against them."""
