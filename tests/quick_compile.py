"""XLA told to compile quickly, for tests of what a program computes and not of how long it takes.

On a CPU a quarter of the time of such tests goes to making code that is quick.
"""

#: ``compiler_options`` of jax.jit
OPTIONS = {"xla_backend_optimization_level": 0}
#: The same as a variable of a process that is started.
ENVIRONMENT = {"XLA_FLAGS": " ".join(f"--{name}={value}" for name, value in OPTIONS.items())}
