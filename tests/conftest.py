"""What has to happen in the test process before any test module is imported."""

# TensorFlow's library exports SQLite's functions: imported after it, sqlite3 runs on those.
import signal
import sqlite3  # noqa: F401
import sys

from hypothesis import settings

# OpenVINO's import forks the process to report itself; JAX, if it is loaded, warns of the fork.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

# How long an example takes says how busy the machine is, the more so with a worker on every core.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# A shell lets what it starts in its background ignore SIGINT, and so would every process that a
# test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
