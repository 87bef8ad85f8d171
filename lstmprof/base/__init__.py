"""Shared by all stages: errors, files, terminal, processes, and the text of numbers and names.

This file imports nothing, because capture workers import ``errors`` and ``scratch``.
"""
