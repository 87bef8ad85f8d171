"""The fields of the document that ``lstmprof check --format json`` writes.

``make docs`` generates docs/check.schema.json from this file.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from lstmprof.breakdown.lacks import first_of_ranks
from lstmprof.breakdown.result import Documented, doc

if TYPE_CHECKING:
    import pandas

VERSION = 1
State = Literal["ok", "warn", "fail", "not recorded"]
OK: State = "ok"
WARN: State = "warn"
FAIL: State = "fail"
NOT_RECORDED: State = "not recorded"


class Row(Documented, frozen=True):
    """The result of one check on the profile of one rank."""

    rank: Annotated[
        int | None, doc("rank; null: the profile has no rank, or the row is about the whole run")
    ]
    question: Annotated[str, doc("name of the check")]
    state: Annotated[
        State,
        doc("fail: results that need the data are wrong; not recorded: the profile lacks the data"),
    ]
    sentence: Annotated[str, doc("the result, with counts of events")]
    share: Annotated[float | None, doc("affected share, 0–1; null: unknown, or not a share")]


class Checked(Documented, frozen=True):
    """The results of all checks on the profile of one run."""

    run: Annotated[str, doc("name of the run")]
    state: Annotated[State, doc("worst state of its rows: fail, warn or ok")]
    profile_format: Annotated[str | None, doc("format, like kineto or xplane; null: unknown")]
    rows: Annotated[list[Row], doc("results, by rank and check")]
    record_with: Annotated[
        list[str], doc("names of recipes in docs/recording.md that record the missing parts")
    ]

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return the lines in two parts: ``("  ok            stacks:", "3 frames")``."""
        alike: dict[tuple[str, str], list[Row]] = {}
        for row in self.rows:
            alike.setdefault((row.question, row.state), []).append(row)
        several = len({row.rank for row in self.rows if row.rank is not None}) > 1
        lines = []
        for (question, state), rows in alike.items():
            ranks = [row.rank for row in rows if row.rank is not None] if several else []
            prefix = first_of_ranks(ranks) if ranks else ""
            for text in {row.sentence: None for row in rows if row.rank == rows[0].rank}:
                lines.append((f"  {state:<12}  {question}:", f"{prefix}{text}"))
        return lines

    def __repr__(self) -> str:
        rows = [f"{head} {text}" for head, text in self.lines]
        return "\n".join([f"{self.run}: {self.state}", *rows])


class Document(Documented, frozen=True):
    """A check on whether profiles are complete and undisturbed; ``lp.check`` returns it."""

    schema_version: Annotated[int, doc("version of this document's schema")]
    exit_status: Annotated[int, doc("exit status of the command: 3 if a row is fail, else 0")]
    runs: Annotated[list[Checked], doc("one entry per run")]

    @property
    def state(self) -> State:
        """Return the worst state of the runs: ``fail``, ``warn`` or ``ok``."""
        states = {run.state for run in self.runs}
        return next((state for state in (FAIL, WARN) if state in states), OK)

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a DataFrame with one row per result; the first column is ``run``."""
        import pandas

        columns = ["run", *Row.__struct_fields__]
        rows = [
            {"run": run.run, **msgspec.structs.asdict(r)} for run in self.runs for r in run.rows
        ]
        return pandas.DataFrame.from_records(rows, columns=columns)

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self.runs))


def json_schema() -> dict[str, Any]:
    return msgspec.json.schema(Document)
