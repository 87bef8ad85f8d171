"""The functions of ``import lstmprof as lp``, for notebooks and scripts.

::

    read, read_all, ingest, capture  return a Run (or a list), which has
                                     .step_ms .table() .ledger() .timings() .what_if()
    diagnose, compare ─▶ Diagnosis     gate ─▶ Gate     recommend ─▶ Recommendation
    check ─▶ Document     table ─▶ PaperTable     sql, history ─▶ Table     report ─▶ an HTML file

A function that takes runs also takes paths and URLs: of runs, folders of runs, profiles and tar
archives. Errors that a user can fix are ``LstmprofError``s with a one-line message.
"""

from lstmprof.api.captures import capture, recommend
from lstmprof.api.output import PaperTable, charts, report, sql, table
from lstmprof.api.runs import Run, ingest, read, read_all
from lstmprof.api.verdicts import Diagnoses, check, compare, diagnose, gate, history
from lstmprof.breakdown.result import Table
from lstmprof.capture.own.session import profile
from lstmprof.capture.own.watch import watch
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.gate import Gate
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
