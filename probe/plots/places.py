"""What pictures of per-unit results share: the layers and directions shown, what is said of them, colours."""

import xarray as xr

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito, colour-blind-safe
MARKERS = ("o", "^", "s", "D", "v", "P")


def require_dataset(result: object, picture: str, maker: str) -> None:
    """Raise where what is to be drawn is no result at all."""
    if not isinstance(result, xr.Dataset):
        raise TypeError(f"{picture} needs what {maker} returned; {type(result).__name__} came.")


def chosen_places(result: xr.Dataset, layer: int | None, direction: str | None) -> xr.Dataset:
    """The result with only the layer and direction asked for; both dimensions stay."""
    for dim, value in {"layer": layer, "direction": direction}.items():
        choices = result[dim].to_numpy().tolist()
        if value is not None and value not in choices:
            raise ValueError(f"{dim} must be one of {choices}; {value!r} came.")
        if value is not None:
            result = result.isel({dim: [choices.index(value)]})
    return result


def places_title(heading: str, result: xr.Dataset, chosen: xr.Dataset) -> str:
    """What is shown, of which module, and which of its layers, directions and units."""
    layers, directions = chosen["layer"].to_numpy().tolist(), chosen["direction"].to_numpy().tolist()
    which = [
        f"layer {layers[0]}" if len(layers) == 1 else f"{len(layers)} layers",
        directions[0] if len(directions) == 1 else "both directions",
        f"{chosen.sizes['unit']} units" + (" each" if len(layers) * len(directions) > 1 else ""),
    ]
    module, cell = result.attrs.get("module", ""), result.attrs.get("cell", "")
    return f"{heading}: {module} ({cell})\n" + ", ".join(which)
