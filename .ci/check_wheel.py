"""Compares the built archives with the sources: nothing missing, nothing that does not belong.

The wheel must hold every module of the working folders under its place in the namespace and the marker of types, and no
other top-level name; the source archive must hold what building and citing need.
"""

import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
NEEDED_IN_SOURCES = ("pyproject.toml", "README.md", "LICENSE")


def expected_modules() -> set[str]:
    """Where each module of the working folders is to stand in the wheel, by the table in pyproject.toml."""
    folders = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    top_folders = {folder.partition("/")[0]: name for name, folder in folders.items() if "/" not in folder}
    modules = set()
    for folder, name in top_folders.items():
        for path in (TOP / folder).rglob("*.py"):
            modules.add(f"{name.replace('.', '/')}/{path.relative_to(TOP / folder).as_posix()}")
    return modules | {"gatescope/py.typed"}


def complaints(dist: Path) -> list[str]:
    (wheel,) = dist.glob("*.whl")
    (sources,) = dist.glob("*.tar.gz")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = expected_modules()
    found = [f"the wheel lacks {name}: name its folder in pyproject.toml" for name in sorted(expected - held)]
    stray = {name for name in held - expected if name.endswith(".py") or not name.startswith("gatescope/")}
    found += [f"the wheel holds {name}, which is no module of gatescope's folders" for name in sorted(stray)]
    with tarfile.open(sources) as archive:
        in_sources = {name.partition("/")[2] for name in archive.getnames()}
    return found + [f"the source archive lacks {name}" for name in NEEDED_IN_SOURCES if name not in in_sources]


if __name__ == "__main__":
    problems = complaints(Path(sys.argv[1]))
    if problems:
        sys.exit("\n".join(problems))
    print(f"the wheel holds all {len(expected_modules())} files and nothing else")
