"""The functions of ``import lstmprof as lp``, for notebooks and scripts.

::

    read, read_all, ingest, capture ─▶ Run ─▶ table, ledger, timings, what_if, step_ms
    diagnose, compare ─▶ Diagnosis     gate ─▶ Gate     recommend ─▶ Recommendation
    check ─▶ Document     table ─▶ PaperTable     sql, history ─▶ Table     charts, report

Wherever a function takes runs, it also takes paths and URLs: of a run's folder, a folder of runs, a
raw profile, a folder with one profile per rank, or a tar archive. Every error that a user can fix
is an ``LstmprofError`` with a one-line message that names the argument at fault.
"""

from lstmprof.api.captures import capture, recommend
from lstmprof.api.output import PaperTable, charts, report, sql, table
from lstmprof.api.runs import Run, ingest, read, read_all
from lstmprof.api.verdicts import Diagnoses, check, compare, diagnose, gate, history
from lstmprof.breakdown.result import Table
from lstmprof.capture.own.session import profile
from lstmprof.capture.own.watch import watch
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.gate.verdict import Gate
from lstmprof.diagnose.recommend import Recommendation
from lstmprof.diagnose.verdict import Verdict

__all__ = [
    "Diagnoses",
    "Diagnosis",
    "Gate",
    "PaperTable",
    "Recommendation",
    "Run",
    "Table",
    "Verdict",
    "capture",
    "charts",
    "check",
    "compare",
    "diagnose",
    "gate",
    "history",
    "ingest",
    "profile",
    "read",
    "read_all",
    "recommend",
    "report",
    "sql",
    "table",
    "watch",
]
