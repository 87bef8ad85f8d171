"""The JSON Schemas of what ``lstmprof … --format json`` writes, from the code.

docs/diagnose.schema.json, docs/compare.schema.json and docs/check.schema.json. Write them anew
with ``make docs``; a test holds the committed files to these.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import compare_document
import diagnose_document

from lstmprof.breakdown.check import document as check_document

SCHEMAS = {
    "diagnose.schema.json": diagnose_document.json_schema,
    "compare.schema.json": compare_document.json_schema,
    "check.schema.json": check_document.json_schema,
}


def text(schema: dict[str, Any]) -> str:
    """What a file holds."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, schema in SCHEMAS.items():
        Path(__file__).with_name(name).write_text(text(schema()), encoding="utf-8")
