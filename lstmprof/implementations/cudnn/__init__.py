"""cuDNN called without a framework, through ctypes."""
