"""lstmprof: why one LSTM is slower than another."""

__version__ = "0.1.0"
