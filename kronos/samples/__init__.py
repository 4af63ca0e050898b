"""Files that come with the package: real bars and the weights of a tiny model."""

from pathlib import Path

_FOLDER = Path(__file__).parent


def ibm_daily() -> Path:
    """Daily bars of IBM, 2000-03-01 to 2013-03-01 (3,270 rows, csv.gz); see PROVENANCE.md."""
    return _FOLDER / "ibm_daily_2000_2013.csv.gz"


def tiny_run() -> Path:
    """The folder of the run that trained the tiny model: its tokenizer and its forecaster."""
    return _FOLDER / "tiny"
