"""The project's own files agree with one another."""

import datetime
import importlib.metadata
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import gatescope

TOP = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())
PACKAGE_DIR: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]
CFF_KEYS = re.findall(
    r"\S+",
    """abstract authors cff-version commit contact date-released doi identifiers keywords license license-url message
    preferred-citation references repository repository-artifact repository-code title type url version""",
)


def pinned() -> dict[str, str]:
    lines = (TOP / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def requirement_name(requirement: str) -> str:
    return re.split(r"[\[<>=!~ ]", requirement)[0]


def test_every_folder_with_modules_is_a_package_of_the_namespace() -> None:
    tops = {folder for folder in PACKAGE_DIR.values() if "/" not in folder}
    with_modules = {path.parent.relative_to(TOP).as_posix() for top in tops for path in (TOP / top).rglob("*.py")}
    assert set(PACKAGE_DIR.values()) == with_modules
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == set(PACKAGE_DIR)
    for package, folder in PACKAGE_DIR.items():
        assert package.endswith(folder.replace("/", "."))
        assert (TOP / folder / "__init__.py").is_file()


def test_installed_version_is_the_version_in_the_code() -> None:
    assert importlib.metadata.version("gatescope") == gatescope.__version__


def test_types_are_marked_as_shipped() -> None:
    assert (TOP / "gatescope" / "py.typed").is_file()
    assert PROJECT["tool"]["setuptools"]["package-data"]["gatescope"] == ["py.typed"]


def test_every_dependency_has_a_tested_version() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    asked = [*PROJECT["project"]["dependencies"], *extras["stats"], *extras["scale"], *extras["watch"]]
    assert {requirement_name(r) for r in asked} - set(pinned()) == set()


@pytest.mark.parametrize("extra", ["test", "check", "examples"])
def test_tools_and_example_models_are_pinned_once(extra: str) -> None:
    wanted = [r for r in PROJECT["project"]["optional-dependencies"][extra] if not r.startswith("gatescope[")]
    assert [r for r in wanted if "==" not in r] == []
    assert [r for r in wanted if requirement_name(r) in pinned()] == []


def test_all_is_every_extra_for_users_but_the_examples() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (all_of_them,) = extras["all"]
    inside = set(re.findall(r"\w+", all_of_them.partition("[")[2]))
    assert inside == set(extras) - {"all", "examples", "test", "check"}


def test_citation_file_is_valid_and_of_this_version() -> None:
    citation = yaml.safe_load((TOP / "CITATION.cff").read_text())
    assert set(citation) <= set(CFF_KEYS)
    assert {"authors", "cff-version", "message", "title"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] in ("software", "dataset")
    assert citation["authors"]
    for author in citation["authors"]:
        assert "name" in author or {"family-names", "given-names"} & set(author)
    assert citation["version"] == gatescope.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    assert all(isinstance(word, str) for word in citation["keywords"])
    assert isinstance(citation.get("date-released", datetime.date.today()), datetime.date)


def test_change_log_begins_with_this_version() -> None:
    headings = re.findall(r"^## (\S+)", (TOP / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert headings[0] == gatescope.__version__


def test_links_in_the_documents_lead_somewhere() -> None:
    documents = [TOP / "README.md", *(TOP / "docs").glob("*.md")]
    broken = []
    for document in documents:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if "://" not in target and not (document.parent / target).exists():
                broken.append(f"{document.name}: {target}")
    assert broken == []


def test_make_help_names_every_command() -> None:
    done = subprocess.run(["make", "--no-print-directory", "-C", TOP], capture_output=True, text=True, check=True)
    named = re.findall(r"^make (\w+)", done.stdout, flags=re.MULTILINE)
    (phony,) = re.findall(r"^\.PHONY: (.*)", (TOP / "Makefile").read_text(), flags=re.MULTILINE)
    assert sorted(named) == sorted(phony.split())
