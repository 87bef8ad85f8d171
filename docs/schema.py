"""docs/diagnose.schema.json, the JSON Schema of ``lstmprof diagnose --format json``, from the code.

Write it anew with ``make docs``; a test holds the committed file to this one.
"""

from __future__ import annotations

import json
from pathlib import Path

from lstmprof.diagnose.document import json_schema

FILE = Path(__file__).with_name("diagnose.schema.json")


def text() -> str:
    """What the file holds."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
