"""Commands that make runs: measure implementations and scripts, and read or cut profiles."""
