"""The commands, one per file, in the order in which a user needs them.

A command is imported when it is used. ``VERBS`` repeats the first sentence of each command's help,
so that `lstmprof --help` imports no command.
"""

VERBS = {
    "demo": "Diagnose two sample runs, to show what an answer looks like.",
    "list": "List the implementations, workloads and environments that capture can run.",
    "capture": "Time and profile LSTM implementations, each in its own process.",
    "run": "Run a training script unchanged, and profile a few of its steps.",
    "attach": "Profile a few steps of a training that is being watched.",
    "ingest": "Convert existing profiles to runs.",
    "check": "Check what a profile lacks, and show how to record a better one.",
    "breakdown": "Show where every nanosecond of a step goes, busy and idle.",
    "diagnose": "Explain why runs are slow, and what to change.",
    "compare": "Compare new runs with a baseline, as a gate for CI.",
    "history": "Show how step times changed from run to run.",
    "table": "Print runs as a table for a paper.",
    "recommend": "Find the fastest implementation of a network on this machine, and print its "
    "code.",
    "report": "Write an HTML page with verdicts, charts and tables.",
    "cut": "Cut a large profile to a few of its steps.",
    "export": "Export a run to Perfetto or speedscope.",
    "mcp": "Serve lstmprof's answers to agents, over the Model Context Protocol.",
    "query": "Query the tables of all runs with SQL.",
}
