"""Read and measure the machine of the worker: CPUs, GPU, counters, energy, peak rates.

This file imports nothing.
"""
