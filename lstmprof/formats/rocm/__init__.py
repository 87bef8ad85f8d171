"""Readers of what AMD's rocprofv3 writes."""
