"""The parts of bench/gpu.py: each yields figures, in a process of its own."""
