"""Evidence of studies by real processes: a command and a service, checked by a bare Python."""

from __future__ import annotations

import getpass
import json
import socket
import subprocess
import sys
import zipfile

import pytest

from tests.integration.folder import Folder
from tests.integration.test_own_service import SHORT, serving
from tuner import verify

pytestmark = [pytest.mark.slow, pytest.mark.quiet]

PROGRAM = """
import json, sys
batch = int(sys.argv[1])
left = 8_000_000 // batch
while left:
    left -= 1
print(json.dumps({"accuracy": 0.9 - batch / 1000}))
"""


def checked(folder: Folder, study: str, *secret: str) -> str:
    """Export a study's evidence, check it with Python alone, and return the printed result."""
    archive = folder.path / "study.zip"
    code, _, err = folder.ask("evidence", study, "-o", str(archive))
    assert code == 0, err
    command = [sys.executable, "-I", verify.__file__, str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "CONTRADICTION" not in done.stdout
    with zipfile.ZipFile(archive) as bundle:
        names = [name for name in bundle.namelist() if name != "verify.py"]
        text = "".join(bundle.read(name).decode() for name in names)
        assert sum(name.startswith("samples/") for name in names) >= 2
        assert json.loads(bundle.read("evidence.json"))["study"]["alternates"]
    for word in (socket.gethostname(), str(folder.path), sys.executable, *secret):
        assert f"{word}" not in text, word
    if len(user := getpass.getuser()) > 4:
        assert user not in text
    return done.stdout


def test_a_program_s_figures_are_computed_from_its_runs(folder: Folder) -> None:
    (folder.path / "train.py").write_text(PROGRAM)
    study = folder.run(
        "--command", f"{sys.executable} train.py {{batch}}", "--knob", "batch=1,2,4,8@2",
        "--metric", "accuracy:more", "--constraint", "accuracy >= 0.7", "--runs", "3",
        "--trials", "3", "--foreign-share", "1",
    )  # fmt: skip
    shown = checked(folder, study["study"]["id"], "train.py")
    assert "not computed: each window's cpu_time_ms" not in shown


def test_a_service_s_latencies_are_computed_from_its_requests(folder: Folder) -> None:
    with serving(folder) as page:
        words = [word.replace("$PWD", str(folder.path)) for word in page.commands[1][2:]]
        study = folder.run(*words, *SHORT)
    assert "not computed" in checked(folder, study["study"]["id"], "pack.toml", "app.py")
