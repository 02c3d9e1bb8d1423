"""Which code made a result: a fingerprint of the engine that no comment and no docstring changes."""

import ast
from functools import cache
from hashlib import sha256
from pathlib import Path

FIRST = "experiment"  # the module that trains a network, with all of this folder that it imports
LISTED = ("variants",)  # but for what stands in every result by itself: its settings


@cache
def engine_code() -> str:
    """Twelve letters that stand for all statements of the modules that decide a result; `unknown` without sources."""
    digest = sha256()
    try:
        for name, tree in sorted(modules(Path(__file__).parent).items()):
            digest.update(f"{name}\n{ast.dump(tree)}\n".encode())
    except OSError:
        return "unknown"
    return digest.hexdigest()[:12]


def modules(folder: Path) -> dict[str, ast.Module]:
    """The first module and whatever it imports from its folder, directly or not, as trees without docstrings."""
    found: dict[str, ast.Module] = {}
    due = [FIRST]
    while due:
        name = due.pop()
        if name in found or name in LISTED:
            continue
        found[name] = without_docstrings((folder / f"{name}.py").read_text(encoding="utf-8"))
        near = [node for node in ast.walk(found[name]) if isinstance(node, ast.ImportFrom) and node.level == 1]
        due += [str(node.module) for node in near if (folder / f"{node.module}.py").is_file()]
    return found


def without_docstrings(source: str) -> ast.Module:
    """A module's syntax tree, which holds no comments, without texts that are statements of their own.

    >>> ast.dump(without_docstrings("x = 1  # one")) == ast.dump(without_docstrings("'''Doc.'''\\nx = 1"))
    True
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not is_text(part)] or [ast.Pass()]  # type: ignore[attr-defined]
    return tree


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
