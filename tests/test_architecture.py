"""What may import what."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "lossbench"
MODULES = sorted(SOURCE.rglob("*.py"))


def imported(file: Path) -> set[str]:
    """Dotted names of all that a module imports, relative imports resolved."""
    package = [*file.relative_to(SOURCE.parent).with_suffix("").parts][:-1]
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_nothing_imports_the_command_line(file: Path):
    if SOURCE / "cli" not in file.parents and file != SOURCE / "__main__.py":
        assert not any(name.startswith("lossbench.cli") for name in imported(file))


@pytest.mark.parametrize("file", sorted((SOURCE / "losses").rglob("*.py")), ids=lambda file: file.name)
def test_losses_import_torch_and_the_standard_library_alone(file: Path):
    for name in imported(file):
        top = name.partition(".")[0]
        assert top == "torch" or top in sys.stdlib_module_names or name.startswith("lossbench.losses"), name


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_module_fits_a_few_screens(file: Path):
    assert len(file.read_text().splitlines()) <= 500


@pytest.mark.parametrize("module", ["lossbench.report.build", "lossbench.report.statistics", "lossbench.cli"])
def test_the_report_and_the_command_line_start_without_torch(module: str):
    code = f"import sys, {module}; assert not {{'torch', 'transformers', 'pandas', 'matplotlib'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
