"""`mario-tui export --format onnx`: runs the engine's exporter in a separate process; tells how exact the model is."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from engine.errors import UserError
from engine.protocol.framing import decode_export
from engine.protocol.messages import Failed
from engine.protocol.results import Exported
from engine.runtime.extras import install_command
from engine.runtime.signals import exits_on_signals
from engine.runtime.text import printable
from mario_tui.engine_command import EngineCommand, failed
from mario_tui.terminal.progress_bar import progress_bar

_NEEDED = ("onnx", "onnxscript", "onnxruntime")


@exits_on_signals()
def export_onnx(policy: Path, output: Path, code: Sequence[str]) -> int:
    """Write the network of a policy as an ONNX model. `code`: arguments that name code of the policy's game. Returns
    the exit status."""
    if not all(find_spec(name) for name in _NEEDED):
        raise UserError(f"--format onnx needs ONNX; install it with: {install_command('onnx')}")
    if output.exists() and not output.is_file():
        raise UserError(f"--output must be a file, got {output}")
    command = EngineCommand("export_onnx", str(policy), str(output.resolve()), *code, decode=decode_export)
    with command, progress_bar(f"exporting {printable(output.name)}", None):  # half a minute for Snake's
        result = command.result(Exported)
    if isinstance(result, Failed):
        return failed("the export", result)
    print(_told(result, output))
    return 0


def _told(r: Exported, output: Path) -> str:
    return printable(f"wrote {output}: {r.size / 2**20:.1f} MiB, opset {r.opset}") + (
        f"\n{r.agreeing:,} of {r.observations:,} actions agree with the policy; "
        f"largest difference of a Q-value: {r.largest_difference:.1e}"
    )
