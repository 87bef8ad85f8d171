"""Readers of Nsight Systems (``nsys``, ``nsys_events``) and of nvprof, and what both need."""
