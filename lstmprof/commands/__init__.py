"""One verb a file, in the order in which a user needs them; each is imported on use.

The sentence of a verb is the first of its own help: the help of all verbs imports none.
"""

VERBS = {
    "list": "Show the implementations, the workloads and the environments that capture knows.",
    "capture": "Time and profile implementations, each in processes of its own.",
    "run": "Run a training script as it is, and profile a few of its steps.",
    "ingest": "Read raw profiles into runs: files, folders, archives, URLs.",
    "check": "Say whether a profile is any good, and how to record a better one.",
    "breakdown": "Show where every nanosecond of a step goes, busy and idle.",
    "diagnose": "Say why one run is slower than another, and what to do.",
    "compare": "Say whether what is new is slower than a base: a gate for CI.",
    "history": "Show how the step of an implementation went from run to run, and where it changed.",
    "table": "Make a table for a paper: runs by two of their conditions.",
    "recommend": "Say which implementation is the fastest for a network on this machine, "
    "and give its code.",
    "report": "Draw runs as one HTML page: verdict, charts, tables.",
    "cut": "Cut a large profile to some of its steps.",
    "export": "Write a run as a file that another tool opens.",
    "query": "Answer one SELECT (DuckDB's SQL) over the tables of all runs.",
}
