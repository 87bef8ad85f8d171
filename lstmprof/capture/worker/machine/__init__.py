"""What the worker reads and measures of its machine: CPUs, GPU, counters, energy, peak rates.

This file imports nothing.
"""
