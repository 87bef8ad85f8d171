"""What has to happen in the test process before any test module is imported."""

# TensorFlow's library exports SQLite's functions: imported after it, sqlite3 runs on those.
import sqlite3  # noqa: F401
