"""Serving measured through HTTP: what against_peers.py and stress_cpu.py share."""
