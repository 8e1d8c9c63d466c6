"""Imports run one way along the data's way; only device.py knows the browser; exporting needs torch, running does not."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STAGES = [
    {"errors"},
    {"symbols", "philox"},
    {"sampling"},
    {"sampling_words"},
    {"json_reader"},
    {"schema", "tensor"},
    {"next_token"},
    {"ops"},
    {"graph", "kernels", "memory", "options", "reach"},
    {"reference_ops"},
    {"reference_models"},
    {"reference"},
    {"bundle", "plan", "debug"},
    {"answers", "device_facts", "error_scopes"},
    {"device"},
    {"program"},
    {"compiling"},
    {"profile", "resources", "report"},
    {"session"},
    {"loop"},
    {"decoding"},
    {"tokenizer", "chat", "stops", "turns"},
    {"js_tokenizer", "detokenizer", "model", "bundle_text"},
    {"context"},
    {"generation"},
    {"engine"},
    {"rpc_call"},
    {"rpc"},
]


def imports(path: pathlib.Path) -> set[str]:
    """Return the dotted names that a module imports at run time, at any depth of its code."""
    found: set[str] = set()
    for node in _runtime_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


def _runtime_nodes(tree: ast.AST) -> list[ast.AST]:
    """Walk the tree without the bodies of `if TYPE_CHECKING:`."""
    nodes: list[ast.AST] = []
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING":
            continue
        nodes += [child, *_runtime_nodes(child)]
    return nodes


def stage_of(module: str) -> int:
    for index, names in enumerate(STAGES):
        if module in names:
            return index
    raise AssertionError(f"runtime_py/{module} has no place in STAGES")


def runtime_modules() -> list[tuple[str, pathlib.Path]]:
    """Return (stage name, file) of every module of the runtime; ops/ counts as one."""
    root = ROOT / "runtime_py"
    files = [p for p in root.glob("*.py") if p.stem != "__init__"]
    return [(p.stem, p) for p in files] + [("ops", p) for p in (root / "ops").glob("*.py")]


def backward_arrows(modules: list[tuple[str, pathlib.Path]]) -> list[str]:
    arrows = []
    for name, path in modules:
        for target in imports(path):
            parts = target.split(".")
            if parts[0] != "runtime_py" or len(parts) < 2 or parts[1] == name:
                continue
            if not ((ROOT / "runtime_py" / f"{parts[1]}.py").exists() or parts[1] == "ops"):
                continue
            if stage_of(parts[1]) > stage_of(name):
                arrows.append(f"{name} -> {parts[1]}")
    return sorted(set(arrows))


def test_imports_run_one_way() -> None:
    assert backward_arrows(runtime_modules()) == []


def test_the_arrow_check_can_fail(tmp_path: pathlib.Path) -> None:
    bad = tmp_path / "symbols.py"
    bad.write_text("from runtime_py.session import Session\n")
    assert backward_arrows([("symbols", bad)]) == ["symbols -> session"]


def test_the_runtime_never_imports_the_exporter_or_torch() -> None:
    for _, path in runtime_modules():
        roots = {name.split(".")[0] for name in imports(path)}
        assert not roots & {"exporter", "torch"}, path


def test_only_device_imports_js() -> None:
    users = {path.name for _, path in runtime_modules() if "js" in imports(path)}
    assert users == {"device.py"}


def test_the_exporter_reads_the_runtime_s_contract_only() -> None:
    allowed = {
        "schema",
        "symbols",
        "errors",
        "ops",
        "graph",
        "kernels",
        "debug",
        "reference",
        "json_reader",
        "tensor",
    }
    for path in (ROOT / "exporter").rglob("*.py"):
        for name in imports(path):
            parts = name.split(".")
            if (
                parts[0] == "runtime_py"
                and len(parts) > 1
                and (ROOT / "runtime_py" / f"{parts[1]}.py").exists()
            ):
                assert parts[1] in allowed, f"{path}: {name}"


def test_running_and_serving_need_no_torch() -> None:
    code = "import sys, serve, exporter, exporter.run; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
