"""Profiles in Chrome's trace format that are not Kineto's."""
