"""Which module draws a picture, by the suffix of its path, and what all pages have in common."""

import html
import importlib
from pathlib import Path
from typing import Any

from kronos.errors import ConfigError
from kronos.files import write_text


def picture_writer(path: Path, kind: str) -> Any:
    """`write(path, drawing)` of the module that draws pictures of this kind, such as "figure".

    `<kind>_page` draws .html (plotly), `<kind>_image` .png and .svg (matplotlib).

    Raises:
        ConfigError: another suffix than these, or a library that is not installed.
    """
    if path.suffix not in (".png", ".svg", ".html"):
        raise ConfigError(f"pictures are .png, .svg or .html; got {str(path)!r}")
    how = "page" if path.suffix == ".html" else "image"
    try:
        return importlib.import_module(f"kronos.report.{kind}_{how}").write
    except ModuleNotFoundError as error:
        library = str(error.name).partition(".")[0]
        raise ConfigError(
            f"a {path.suffix} picture needs {library}, which is not installed; "
            "pip install pytest-kronos[report]"
        ) from None


def write_page(path: Path, title: str, plot: str) -> None:
    """One page of HTML around a plot that is HTML already."""
    write_text(
        path,
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{plain(title)}</title></head><body>{plot}</body></html>\n",
    )


def plain(text: str) -> str:
    """Text that neither a browser nor plotly reads as tags."""
    return html.escape(text, quote=False).replace("\n", "<br>")
