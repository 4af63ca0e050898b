"""Make kronos/samples/ibm_daily_2000_2013.csv.gz from the PyPI package bokeh_sampledata.

    pip install bokeh_sampledata==2026.1
    python benchmarks/make_ibm_sample.py

Run again it writes the same text, byte for byte (and the same .gz where zlib is the same).
Numbers are copied as the source spells them; only the columns are chosen and renamed. The file
is read back and validated before the digests for PROVENANCE.md are printed.
"""

import csv
import gzip
import hashlib
import io
from importlib.resources import files

from kronos.data import read_bars
from kronos.files import atomic_path
from kronos.samples import ibm_daily

SOURCE_SHA256 = "5abadf99b2d394f920120a27de6f0df129859d71d4cfb0bf661bcc99446ab1fd"
COLUMNS = {
    "timestamps": "Date",
    "open": "Open",
    "high": "High",
    "low": "Low",
    "close": "Close",
    "volume": "Volume",
}


def main() -> None:
    packed = files("bokeh_sampledata").joinpath("_data", "stocks.csv.gz").read_bytes()
    if sha256(packed) != SOURCE_SHA256:
        raise SystemExit("stocks.csv.gz is not that of bokeh_sampledata 2026.1; install that one")
    text = ibm_text(gzip.decompress(packed).decode("utf-8"))
    with atomic_path(ibm_daily()) as temporary, temporary.open("wb") as raw:
        # neither the time nor a file name goes into the header
        with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=raw, mtime=0) as file:
            file.write(text.encode("utf-8"))

    bars = read_bars(ibm_daily())
    print(f"{len(bars)} rows, {bars.index[0].date()} to {bars.index[-1].date()}")
    print(f"sha256 of the .csv.gz      {sha256(ibm_daily().read_bytes())}")
    print(f"sha256 of the text inside  {sha256(text.encode('utf-8'))}")


def ibm_text(stocks: str) -> str:
    """The IBM rows of the source's CSV text, in its own order, under this package's names."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in csv.DictReader(io.StringIO(stocks)):
        if row["Ticker"] == "IBM":
            writer.writerow(row[name] for name in COLUMNS.values())
    return out.getvalue()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    main()
