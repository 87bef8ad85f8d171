"""Every Python snippet of README.md and docs/own_code.md runs as it stands.

Training loops and captures take a minute each and are run by tests of their own
(``test_own_code``, ``test_own_script``, ``test_api``): here their arguments are checked alone.
"""

from __future__ import annotations

import ast
import contextlib
import gzip
import importlib.util
import inspect
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import lstmprof

import lstmprof as lp
from lstmprof.workloads.studies import named

ROOT = Path(__file__).resolve().parents[2]
#: Calls that capture; their arguments are checked alone.
CAPTURES = ("capture", "recommend", "profile")
#: Names that a snippet takes for granted.
GIVEN: dict[str, Any] = {"batches": range(3), "train": lambda batch: None}
#: Characters that a notebook shows of a value.
PAGE = 4000


def snippets(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def files(page: str) -> dict[str, str]:
    """Snippets that begin with the name of a file."""
    named_ = {re.match(r"# (\w+\.py)\n", code): code for code in snippets(page)}
    return {found[1]: code for found, code in named_.items() if found}


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md")])
def test_no_loop_is_measured_by_a_name_that_scripts_give_parameters(page: str) -> None:
    for code in snippets(page):
        with contextlib.suppress(SyntaxError):  # a part of a program
            items = [
                i for n in ast.walk(ast.parse(code)) if isinstance(n, ast.With) for i in n.items
            ]
            assert "p" not in [getattr(item.optional_vars, "id", "") for item in items]


def run_snippet(code: str, given: dict[str, Any]) -> None:
    """Run each statement; show the value of an expression as a notebook does."""
    scope = dict(given)
    for statement in ast.parse(code).body:
        if isinstance(statement, ast.Expr):
            value = eval(ast.unparse(statement), scope)
            assert len(repr(value)) < PAGE, ast.unparse(statement)
        else:
            exec(ast.unparse(statement), scope)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profiles_read_once: None) -> Path:
    """A folder with what the snippets read, and captures that only check their arguments."""
    profile = (ROOT / "tests" / "profiles" / "kineto-today.pt.trace.json").read_bytes()
    (tmp_path / "profile.pt.trace.json.gz").write_bytes(gzip.compress(profile))
    for place, sample in (
        ("traces/fast", "torch-nn-lstm"),
        ("traces/slow", "torch-lstmcell-basic"),
        ("before/run", "torch-nn-lstm"),
        ("after/run", "torch-nn-lstm"),
    ):
        shutil.copytree(ROOT / "traces" / sample, tmp_path / place)
    for name in CAPTURES:
        monkeypatch.setattr(lp, name, checked(getattr(lp, name)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Anything:
    """What a call returns whose arguments are checked alone."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given: contextlib.nullcontext()


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    def call(*given: Any, **named: Any) -> Any:
        signature.bind(*given, **named)
        return contextlib.nullcontext(Anything()) if function.__name__ == "profile" else Anything()

    return call


@pytest.mark.parametrize("place", range(len(snippets("README.md"))))
def test_a_snippet_of_the_readme_runs(place: int, folder: Path) -> None:
    run_snippet(snippets("README.md")[place], GIVEN)


def test_the_output_in_the_readme_is_what_the_command_prints() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n\$ lstmprof (diagnose traces/.*)\n([^$]*?)```", text)
    assert blocks
    for command, output in blocks:
        assert lstmprof(*command.split(), cwd=ROOT).stdout == output


def test_the_api_is_in_the_readme() -> None:
    code = "\n".join(snippets("README.md"))
    for name in ("read", "diagnose", "compare", "table", "check", "report"):
        assert f"lp.{name}(" in code


def test_every_snippet_about_own_code_is_a_loop_or_a_file() -> None:
    loops = [code for code in snippets("docs/own_code.md") if "lp.profile(" in code]
    assert len(loops) == 4  # test_own_code runs them
    assert set(files("docs/own_code.md")) == {"mymodel.py", "train.py"}  # test_own_script: train.py
    (callbacks,) = (code for code in snippets("docs/own_code.md") if "lp.keras" in code)
    for name in lp.CALLBACKS:  # test_callbacks trains with them
        assert f"lp.{name}.Profile(" in callbacks
    assert len(snippets("docs/own_code.md")) == 8


def test_the_watched_loop_writes_its_log(tmp_path: Path) -> None:
    (watched,) = (code for code in snippets("docs/own_code.md") if "lp.watch(" in code)
    with contextlib.chdir(tmp_path):
        run_snippet(f"import lstmprof as lp\n{watched}", GIVEN)
    assert (tmp_path / "traces" / "watch.jsonl").is_file()


def test_the_model_builds_the_network_of_a_workload(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "mymodel.py").write_text(files("docs/own_code.md")["mymodel.py"], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("mymodel", tmp_path / "mymodel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    workload = named("1x320-ce-short")
    network = module.build(workload)
    assert network(torch.zeros(2, 5, workload.features)).shape == (2, workload.classes)
