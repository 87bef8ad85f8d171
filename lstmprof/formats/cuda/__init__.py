"""Readers for Nsight Systems (``nsys``, ``nsys_events``) and nvprof, and helpers."""
