"""What a worker may be made of: Python 3.7's syntax, the standard library, NumPy, the framework."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import lstmprof
from lstmprof import implementations
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import __main__ as worker
from lstmprof.workloads import Workload

PACKAGE = Path(lstmprof.__file__).parent
FILES = [
    PACKAGE / "__init__.py",
    PACKAGE / "base" / "errors.py",
    PACKAGE / "base" / "package.py",
    *sorted((PACKAGE / "workloads").rglob("*.py")),
    *sorted((PACKAGE / "implementations").rglob("*.py")),
    PACKAGE / "capture" / "__init__.py",
    PACKAGE / "capture" / "request.py",
    PACKAGE / "capture" / "implementation_file.py",
    *sorted((PACKAGE / "capture" / "worker").rglob("*.py")),
    *(PACKAGE / "capture" / "own" / name for name in ("__init__.py", "session.py", "passes.py")),
    PACKAGE / "runs" / "directory.py",
    PACKAGE / "base" / "__init__.py",
    PACKAGE / "base" / "scratch.py",
    *(
        path
        for path in sorted((PACKAGE / "capture" / "script").glob("*.py"))
        if path.stem not in ("launch", "nsys")
    ),
]
FRAMEWORKS = {
    *("torch", "tensorflow", "keras", "jax", "jaxlib", "flax", "equinox", "haiku", "pytensor"),
    *("onnx", "onnxruntime", "openvino", "theano", "lasagne", "chainer", "mxnet", "caffe2"),
}
ALLOWED = sys.stdlib_module_names | FRAMEWORKS | {"numpy", "nvtx", "lstmprof"}
FORBIDDEN = ("pyarrow", "pandas", "click", "rich", "google.protobuf", "lstmprof.runs.run")


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_the_syntax_is_python_3_7(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 7))


#: What may stand bare over a function from Python 3.8 on, or is in functools from 3.8 and 3.9 on.
_LATER = {"lru_cache", "cache", "cached_property"}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_decorator_is_python_3_7(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bare = [d for n in ast.walk(tree) for d in getattr(n, "decorator_list", [])]
    names = {d.attr if isinstance(d, ast.Attribute) else getattr(d, "id", "") for d in bare}
    assert not names & _LATER


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_else_is_imported(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    names += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in names} <= ALLOWED


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("torch-nn-lstm", set()),
        ("tf-lstmcell", {"pandas", "jax"}),
        ("keras-lstm", {"pandas", "jax"}),
        ("keras-jax-lstm", {"pandas"}),
    ],
)
def test_a_row_finds_nothing_that_it_does_not_need(
    name: str, left_out: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: dict[str, None] = {}
    monkeypatch.setattr(worker, "sys", SimpleNamespace(modules=imported))
    worker._leave_out(implementations.find(name))
    assert imported == dict.fromkeys(left_out)


def test_a_worker_loads_no_table_library_and_looks_for_garbage_once(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    workload = Workload("tiny", 1, 4, False, 2, 5, 3, 3, "ce")
    request = CaptureRequest("torch-nn-lstm", workload, device="cpu", iterations=1, warmup=1)
    (tmp_path / "request.json").write_text(request.to_json(), encoding="utf-8")
    (tmp_path / "lstmprof").symlink_to(PACKAGE)
    program = (
        "import gc, json, os, sys; looks = []\n"
        "def look(phase, info):\n"
        "    if phase == 'start' and 'torch' in sys.modules: looks.append(info['generation'])\n"
        "from lstmprof.capture.worker import __main__ as worker\n"
        "gc.callbacks.append(look)\n"
        "assert worker.process(['request.json', str(os.getppid())]) == 0\n"
        "seen = {'looks': looks, 'in_sight': len(gc.get_objects()), 'modules': [*sys.modules]}\n"
        "json.dump(seen, open('seen.json', 'w'))"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=True)
    seen = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    assert "lstmprof.capture.worker.loops.torch" in seen["modules"]
    assert not set(FORBIDDEN) & set(seen["modules"])
    assert seen["looks"] == [2]  # before the passes
    assert seen["in_sight"] < 1_000  # of some 500,000, for Python to look at as it ends
