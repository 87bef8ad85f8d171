"""Commands that explain runs: breakdown, check, compare, demo, diagnose and history."""
