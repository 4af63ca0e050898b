"""Which module draws a picture, by the suffix of its path."""

import importlib
from pathlib import Path
from typing import Any

from kronos.errors import ConfigError


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
