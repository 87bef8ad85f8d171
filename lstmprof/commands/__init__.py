"""One verb a file, in the order in which a user needs them; each is imported on use."""

VERBS = {
    "list": "lstmprof.commands.list",
    "capture": "lstmprof.commands.capture",
    "run": "lstmprof.commands.run",
    "ingest": "lstmprof.commands.ingest",
    "check": "lstmprof.commands.check",
    "breakdown": "lstmprof.commands.breakdown",
    "diagnose": "lstmprof.commands.diagnose",
    "compare": "lstmprof.commands.compare",
    "history": "lstmprof.commands.history",
    "table": "lstmprof.commands.table",
    "recommend": "lstmprof.commands.recommend",
    "report": "lstmprof.commands.report",
    "cut": "lstmprof.commands.cut",
    "export": "lstmprof.commands.export",
    "query": "lstmprof.commands.query",
}
