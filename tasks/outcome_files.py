"""One finished network in one .npz file, and whether what is read can be believed."""

import dataclasses
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..signals import VERSION
from .experiment import Outcome, Setting
from .provenance import engine_code

HEADER = "header"


class DamagedError(ValueError):
    """A file that is half-written, changed, or of another network, row or setting."""


def write_outcome(path: Path, outcome: Outcome, row: str, setting: Setting) -> None:
    """Write one network; the file's bytes depend on nothing but what is written."""
    values, arrays, mappings = taken_apart(outcome)
    header = {
        "row": row,
        "setting": setting.to_dict(),
        "outcome": values,
        "mappings": mappings,
        "gatescope_version": VERSION,
        "engine": engine_code(),
    }
    text = json.dumps(header, sort_keys=True).encode()
    named: dict[str, Any] = {HEADER: np.frombuffer(text, np.uint8), **arrays}
    with path.open("wb") as file:
        np.savez_compressed(file, **named)


def read_outcome(path: Path, row: str, network: int, setting: Setting) -> Outcome:
    """Read one network and check that it is the one that was asked for."""
    header, arrays = read_file(path)
    try:
        if header["row"] != row:
            raise DamagedError(f"it holds a network of row {header['row']!r}")
        if header["setting"] != json.loads(json.dumps(setting.to_dict())):
            raise DamagedError("it was made with other settings")
        outcome = put_together(header, arrays)
    except DamagedError:
        raise
    except Exception as error:
        raise DamagedError(f"it cannot be read ({type(error).__name__})") from error
    if outcome.network != network:
        raise DamagedError(f"it holds network {outcome.network}")
    return outcome


def read_engine(path: Path) -> str:
    """By which engine code the network of a file was trained; nothing where that cannot be read."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as loaded:
            return str(json.loads(loaded[HEADER].tobytes()).get("engine", ""))
    except PermissionError:
        raise
    except Exception:
        return ""


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and all arrays; their checksums are the zip format's own."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as loaded:
            arrays = {name: loaded[name] for name in loaded.files}
        return json.loads(arrays.pop(HEADER).tobytes()), arrays
    except PermissionError:
        raise
    except Exception as error:
        reason = "it is half-written" if isinstance(error, (zipfile.BadZipFile, EOFError)) else "it cannot be read"
        raise DamagedError(f"{reason} ({type(error).__name__}, {path.stat().st_size} bytes)") from error


def taken_apart(outcome: Outcome) -> tuple[dict[str, Any], dict[str, np.ndarray], list[str]]:
    """Plain values, arrays by name, and which fields were mappings of arrays (`weights.readout.bias`)."""
    values: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    mappings = []
    for field in dataclasses.fields(outcome):
        value = getattr(outcome, field.name)
        if isinstance(value, np.ndarray):
            arrays[field.name] = value
        elif isinstance(value, Mapping):
            mappings.append(field.name)
            arrays |= {f"{field.name}.{name}": np.asarray(array) for name, array in value.items()}
        else:
            values[field.name] = plain_value(value)
    return values, arrays, mappings


def plain_value(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [plain_value(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def put_together(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Outcome:
    fields: dict[str, Any] = {name: tuples(value) for name, value in header["outcome"].items()}
    fields |= {name: {} for name in header["mappings"]}
    for name, array in arrays.items():
        owner, _, within = name.partition(".")
        if within:
            fields[owner][within] = array
        else:
            fields[name] = array
    return Outcome(**fields)


def tuples(value: Any) -> Any:
    return tuple(map(tuples, value)) if isinstance(value, list) else value
