"""torch.compile in a worker: what it needs, and where it leaves what it compiled."""

from pathlib import Path

import pytest

from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.supervisor import capture
from lstmprof.errors import CaptureError
from lstmprof.workloads import Workload

CE = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 3, "ce")


def test_a_missing_compiler_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("CXX", "/no/c++")
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(elsewhere))
    request = CaptureRequest("torch-compile", CE, device="cpu")
    with pytest.raises(
        CaptureError, match=r"^torch.compile found no C\+\+ compiler; install g\+\+"
    ):
        capture(request, tmp_path / "scratch", lambda line: None)
    assert not list(elsewhere.iterdir())
