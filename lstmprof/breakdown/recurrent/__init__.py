"""Recurrent layers in a profile: how they run, and what decides it."""
