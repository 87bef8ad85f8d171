"""Readers of the files that AMD's rocprofv3 writes."""
