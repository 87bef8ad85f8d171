"""The commands, one per file, in folders by what the user wants to do.

``VERBS`` repeats the first sentence of each command's help, so that `lstmprof --help` imports no
command.
"""

#: Command → (folder, first sentence of the help), in the order in which a user needs commands.
VERBS = {
    "demo": ("explaining", "Diagnose two sample runs, to show what an answer looks like."),
    "list": (
        "recording",
        "List the implementations, workloads and environments that capture can run.",
    ),
    "capture": ("recording", "Time and profile LSTM implementations, each in its own process."),
    "run": ("recording", "Run a training script unchanged, and profile a few of its steps."),
    "attach": ("recording", "Profile a few steps of a training that is being watched."),
    "ingest": ("recording", "Convert existing profiles to runs."),
    "check": ("explaining", "Check what a profile lacks, and show how to record a better one."),
    "breakdown": ("explaining", "Show where every nanosecond of a step goes, busy and idle."),
    "diagnose": ("explaining", "Explain why runs are slow, and what to change."),
    "compare": ("explaining", "Compare new runs with a baseline, as a gate for CI."),
    "history": ("explaining", "Show how step times changed from run to run."),
    "table": ("writing", "Print runs as a table for a paper."),
    "recommend": (
        "recording",
        "Find the fastest implementation of a network on this machine, and print its code.",
    ),
    "report": ("writing", "Write an HTML page with verdicts, charts and tables."),
    "cut": ("recording", "Cut a large profile to a few of its steps."),
    "export": ("writing", "Export a run to Perfetto or speedscope."),
    "mcp": ("writing", "Serve lstmprof's answers to agents, over the Model Context Protocol."),
    "query": ("writing", "Query the tables of all runs with SQL."),
}
