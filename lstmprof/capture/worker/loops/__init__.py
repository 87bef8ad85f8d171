"""The loops: one a framework, called by the framework's name."""
