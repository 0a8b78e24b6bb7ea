"""The CPU's kernels: C++ behind a C interface, and what calls it."""
