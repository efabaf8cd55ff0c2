"""Import borders, proved in processes of their own, and what the distribution holds."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from engine import __version__

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("module", "foreign"),
    [
        ("mario_tui.app", ("torch", "llvmlite", "numpy")),  # numpy only with the game's first picture
        ("mario_tui.headless", ("torch", "llvmlite", "textual", "numpy")),
        ("mario_tui.cli", ("torch", "llvmlite", "textual", "rich", "numpy")),
        ("engine.host", ("torch", "llvmlite", "textual", "mario_tui")),
        ("engine.host.supervisor", ("torch", "llvmlite", "textual", "mario_tui")),
        ("engine.sinks.process", ("torch", "llvmlite", "textual", "mario_tui", "numpy")),
        ("engine.host.client", ("torch", "llvmlite", "textual", "mario_tui", "numpy")),
        ("mario_tui", ("engine", "numpy", "msgspec")),
        ("mario_tui.environments", ("torch", "llvmlite", "textual", "rich")),
        ("mario_tui.policies", ("torch", "llvmlite", "textual", "rich")),
        ("engine.extras.reporting", ("torch", "llvmlite", "textual", "gymnasium", "tensorboard")),
        ("engine.runners.single", ("textual", "mario_tui", "gym", "nes_py")),
        ("engine.runners.apex", ("textual", "mario_tui", "gym", "nes_py", "ray")),
        ("engine.commands.evaluate", ("textual", "mario_tui", "gym", "nes_py")),
    ],
)
def test_import_stays_on_its_side(module: str, foreign: tuple[str, ...]) -> None:
    code = f"import {module}, sys; print([name for name in {foreign!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def imported_packages() -> Iterator[str]:
    """The packages that our modules import, anywhere in them."""
    for folder in ("engine", "mario_tui"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.Import):
                    yield from (alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module is not None:
                    yield node.module.partition(".")[0]


def test_every_imported_package_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    options = [
        project["optional-dependencies"][name]
        for name in (
            "hub",
            "mcp",
            "mlflow",
            "onnx",
            "optuna",
            "parquet",
            "pictures",
            "ray",
            "trackio",
            "video",
            "wandb",
        )
    ]
    declared = {normal(re.split("[^A-Za-z0-9._-]", entry)[0]) for entry in sum(options, start=project["dependencies"])}
    foreign = set(imported_packages()) - set(sys.stdlib_module_names) - {"engine", "mario_tui"}
    installed = {"mlflow": ["mlflow-skinny"], **packages_distributions()}  # it may be missing here
    assert not {name for name in foreign if declared.isdisjoint(map(normal, installed.get(name, [name])))}


def normal(distribution: str) -> str:
    return re.sub("[-_.]+", "-", distribution).lower()


@pytest.mark.long
def test_wheel_holds_both_packages_the_themes_and_the_command(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("mario_tui-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        assert b"mario-tui = mario_tui.__main__:main" in archive.read(entry_points)
    assert {f"mario_tui/themes/{path.name}" for path in (ROOT / "themes").glob("*.toml")} <= names
    assert {
        "mario_tui/llms.txt",
        "engine/py.typed",
        "mario_tui/py.typed",
        "engine/host/supervisor.py",
        "mario_tui/app.py",
        "mario_tui/app.tcss",
    } <= names
    assert not any(name.endswith(".nes") or name.startswith("tests/") for name in names)


@pytest.mark.long
def test_both_distributions_are_complete(tmp_path: Path) -> None:
    """As `make dist` builds them: the wheel from the source distribution."""
    subprocess.run([sys.executable, "-m", "build", "--outdir", tmp_path, ROOT], check=True, capture_output=True)
    (archive,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    with tarfile.open(archive) as opened:
        sources = {name.partition("/")[2] for name in opened.getnames()}
    with zipfile.ZipFile(wheel) as opened_wheel:
        files = set(opened_wheel.namelist())
        (metadata,) = (opened_wheel.read(name).decode() for name in files if name.endswith("/METADATA"))
    policies = [path.name for path in (ROOT / "checkpoints" / "policies").iterdir()]
    themes = [path.name for path in (ROOT / "themes").iterdir()]
    assert {"README.md", "LICENSE", "CHANGELOG.md", "Makefile", "tests/conftest.py", "docs/index.md"} <= sources
    assert {f"checkpoints/policies/{name}" for name in policies} | {f"themes/{name}" for name in themes} <= sources
    assert {f"engine/shipped/{name}" for name in policies} | {f"mario_tui/themes/{name}" for name in themes} <= files
    assert {path.partition("/")[0] for path in files if ".dist-info/" not in path} == {"engine", "mario_tui"}
    assert not [name for name in sources | files if name.endswith((".nes", ".pyc"))]
    assert wheel.stat().st_size < 8e6
    assert f"\nVersion: {__version__}\n" in metadata
