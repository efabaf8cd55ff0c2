"""The built distributions install into clean environments with the newest packages that they accept, and train there.

`make test-oldest` runs tests with the oldest. A Python is tried if its command, such as `python3.13`, works here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[1]
OLDEST = "python3.11"


def newest_python() -> str:
    """The command of the newest Python here that the program accepts."""
    for minor in range(13, 11, -1):
        try:
            subprocess.run([f"python3.{minor}", "--version"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return f"python3.{minor}"
    return OLDEST


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel, the source distribution, and `constraints`, which keep PyTorch at the version for CPUs."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, capture_output=True)
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(line for line in lines if line.startswith("torch==")))
    return {"wheel": wheel, "sdist": archive, "constraints": constraints}


def check_training(program: Path, folder: Path) -> None:
    """Train Mario in a folder of its own."""
    folder.mkdir()
    command = [str(program), "--no-ui", "--steps", "300", "--burnin", "100", "--log-format", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert '"event":"summary"' in done.stdout.splitlines()[-1]


@pytest.mark.long
@pytest.mark.parametrize(("python", "form"), [(OLDEST, "wheel"), (newest_python(), "sdist")])
def test_pip_installs_into_a_clean_environment(
    python: str, form: str, distributions: dict[str, Path], tmp_path: Path
) -> None:
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    binaries = tmp_path / "venv" / "bin"
    install: list[str | Path] = [binaries / "pip", "install", "--quiet"]
    subprocess.run([*install, "--constraint", distributions["constraints"], distributions[form]], check=True)
    check_training(binaries / "mario-tui", tmp_path / "elsewhere")
    themes = "from mario_tui.data.settings import load_themes; print(len(load_themes()[0]))"
    done = subprocess.run([binaries / "python", "-c", themes], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 3

    def play() -> subprocess.CompletedProcess[str]:
        command = [str(binaries / "mario-tui"), "eval", "mario-2-1", "--episodes", "1"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    refused = play()
    assert refused.returncode == 2 and "mario-2-1 comes with: pip install 'mario-tui[policies]'" in refused.stderr
    subprocess.run([*install, "--no-deps", ROOT / "checkpoints" / "more-policies"], check=True)
    assert play().returncode == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("tool", "install", "folders"),
    [
        ("uv", ["tool", "install", "--quiet"], ("UV_TOOL_DIR", "UV_TOOL_BIN_DIR")),
        ("pipx", ["install", "--quiet"], ("PIPX_HOME", "PIPX_BIN_DIR")),
    ],
)
def test_a_tool_puts_the_program_on_the_path(
    tool: str, install: list[str], folders: tuple[str, str], distributions: dict[str, Path], tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    binaries = tmp_path / "venv" / "bin"
    subprocess.run([binaries / "pip", "install", "--quiet", tool], check=True)
    constraints = distributions["constraints"]
    held = f"--constraints={constraints}" if tool == "uv" else f"--pip-args=--constraint={constraints}"
    home, path = tmp_path / "home", tmp_path / "path"
    subprocess.run(
        [binaries / tool, *install, held, "--python", sys.executable, distributions["wheel"]],
        check=True,
        env={**os.environ, folders[0]: str(home), folders[1]: str(path)},
    )
    check_training(path / "mario-tui", tmp_path / "elsewhere")


def make(folder: Path, *arguments: str, **commands: str) -> subprocess.CompletedProcess[str]:
    """Call make where there are no commands but these shell scripts, and those of a shell."""
    (binaries := folder / "bin").mkdir()
    (binaries / "make").symlink_to("/usr/bin/make")
    for name, script in commands.items():
        (binaries / name.replace("_", ".")).write_text(f"#!/bin/sh\n{script}\n")
        (binaries / name.replace("_", ".")).chmod(0o755)
    return subprocess.run(
        ["make", f"VENV={folder / 'venv'}", *arguments],
        cwd=ROOT, env={"PATH": str(binaries)}, capture_output=True, text=True,
    )  # fmt: skip


HERE = f'exec {sys.executable} "$@"'
OLDER = f"exec {sys.executable} -c 'import sys; sys.version_info = (3, 10, 13); exec(sys.argv[2])' \"$@\""


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="nes-py needs no compiler from Python 3.13 on")
def test_make_says_what_to_do_without_a_compiler(tmp_path: Path) -> None:
    done = make(tmp_path, "PYTHON=python3", "train", python3=HERE)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        "make: a C++ compiler is needed: g++ not found (apt install g++), or Python 3.13 (make PYTHON=python3.13)"
    )
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        (("python3_11", "python3_12"), "python3.11"),
        (("python3_12", "python3_13"), "python3.12"),
        (("python3_13",), "python3.13"),
    ],
)
def test_make_takes_the_first_python_that_works(there: tuple[str, ...], taken: str, tmp_path: Path) -> None:
    away = dict.fromkeys(("python3_11", "python3_12", "python3_13"), "echo 'pyenv: command not found' >&2; exit 127")
    done = make(tmp_path, "--dry-run", "train", **away | dict.fromkeys(there, HERE))
    assert f"{taken} -m venv" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "Python 3.11 to 3.13 is needed: python3.11 can't be run (make PYTHON=...)"),
        (("PYTHON=missing",), "Python 3.11 to 3.13 is needed: missing can't be run (make PYTHON=...)"),
        (
            ("PYTHON=older",),
            "PYTHON must be Python 3.11 to 3.13, for which constraints.txt holds; older is 3.10",
        ),
    ],
)
def test_make_refuses_in_one_line_what_it_can_not_install_into(
    arguments: tuple[str, ...], complaint: str, tmp_path: Path
) -> None:
    away = dict.fromkeys(("python3_11", "python3_12", "python3_13"), "exit 127")
    done = make(tmp_path, *arguments, "train", older=OLDER, **away)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"make: {complaint}"
    assert done.stderr.count("\n") == 2  # the other line is make's own
    assert not (tmp_path / "venv").exists()


def test_make_mends_a_folder_that_is_half_made(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    done = make(tmp_path, "PYTHON=here", f"{venv}/bin/pip", **{"here": HERE, "g++": "exit 0"})
    assert done.returncode == 0, done.stderr
    subprocess.run([venv / "bin" / "pip", "--version"], check=True, capture_output=True)
