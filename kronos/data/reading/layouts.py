"""Which column of a file is which, by its names, by the source it looks like, or as it is told.

Sources are known by their columns alone. None changes what a name means; a source explains two
columns for one thing, columns without names, and units that no name tells.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kronos.data.columns import (
    DATE,
    FEATURES,
    SYMBOL,
    TICK_VOLUME,
    TIME,
    TIMESTAMPS,
    known_columns,
    need_columns,
    only_one,
    plain_name,
    quote,
    split_unit,
)
from kronos.data.reading.header import Header, Opening
from kronos.errors import ConfigError, DataError

Lots = Literal["no", "perhaps", "tushare"]

PLAIN = "named columns"
NUMBERED = "numbered columns"


@dataclass(frozen=True, slots=True)
class Section:
    """The columns of one symbol, or of all those that a column names."""

    columns: dict[str, int]
    """Positions by TIMESTAMPS (or DATE and TIME), FEATURES, SYMBOL and TICK_VOLUME."""
    symbol: str | None = None
    """Where the header names it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the columns of a file mean."""

    name: str
    """The source, in words for the report."""
    sections: tuple[Section, ...]
    lots: Lots = "no"
    """Whether its volume may be in lots of 100 shares ("tushare": and amounts in thousands)."""
    units: dict[str, str] = field(default_factory=dict)
    """Units that the header names, by our names."""
    notes: tuple[str, ...] = ()


# Each source has all of the first names, and one of the second if there are any, as `plain_name`
# writes them; the first that fits is it.
_SOURCES: tuple[tuple[str, set[str], set[str]], ...] = (
    ("akshare", {"开盘", "收盘", "最高", "最低", "成交量", "成交额"}, {"振幅", "换手率", "涨跌额"}),
    ("tushare minutes", {"ts code", "trade time"}, set()),
    ("tushare futures", {"ts code", "trade date", "oi"}, set()),
    ("tushare daily", {"ts code", "trade date", "vol"}, set()),
    ("baostock", {"date", "code"}, {"adjustflag", "preclose", "tradestatus"}),
    ("Binance", {"close time"}, {"open time", "opentime"}),
    ("MetaTrader 5", {"tickvol"}, set()),
    ("MetaTrader 5", {"tick volume", "real volume"}, set()),
    ("Stooq", {"ticker", "per", "openint"}, set()),
    ("yfinance", {"open", "close"}, {"adj close", "dividends", "stock splits"}),
    ("qlib", {"instrument", "open"}, set()),
)
_MONTH_DAY = re.compile(r"\d{4}\.\d{1,2}\.\d{1,2}")
_EPOCH = re.compile(r"\d{10}(\d{3}|\d{6}|\d{9})?(\.0)?")
_HISTDATA = re.compile(r"\d{8} \d{6}")
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?|\d{1,6}")
_FULL_TIME = re.compile(r"\d{12}|\d{14}|\d{17}|\d{4}\D.*")


def find_layout(opening: Opening, source: str, mapped: Mapping[str, str]) -> Layout:
    """The layout of a file that begins so; `mapped` is ReadOptions.columns.

    Raises DataError where a needed column is absent, or one thing has two columns.
    """
    header, samples = opening.header, opening.samples
    if not header.is_named:
        return _without_names(header, samples, source, mapped)
    notes = [f"the first {header.notices} line(s) are a notice"] if header.notices else []
    name, is_wide = _source_name(header), header.tickers is not None
    given = _given(header.names, source, mapped)
    sections: list[Section] = []
    for ticker in dict.fromkeys((header.tickers or ("", ""))[1:]):
        allowed = {
            place
            for place in range(len(header.names))
            if not header.tickers or header.tickers[place] in ("", ticker)
        }
        columns = _by_name(header, allowed, samples, source, given, notes)
        sections.append(Section(columns, ticker if is_wide else None))
    units = _units(header.names, sections[0])
    lots: Lots = "perhaps" if name == "akshare" or units.get("volume") == "手" else "no"
    if name == "tushare daily":
        lots = "tushare"
    return Layout(name, tuple(sections), lots, units, tuple(dict.fromkeys(notes)))


def _source_name(header: Header) -> str:
    names = {split_unit(plain_name(name))[0] for name in header.names}
    if header.tickers is not None:
        return "yfinance"
    if any(name.strip().startswith("$") for name in header.names):
        return "qlib"
    for source, all_of, one_of in _SOURCES:
        if all_of <= names and (not one_of or one_of & names):
            return source
    if header.names[:5] == ("time", "open", "high", "low", "close"):
        return "TradingView"
    if header.names == ("Date", "Open", "High", "Low", "Close", "Volume"):
        return "Stooq or yfinance"
    return PLAIN


def _given(names: Sequence[str], source: str, mapped: Mapping[str, str]) -> dict[str, int]:
    """The positions of the columns that the caller names, or numbers from 1."""
    allowed = (TIMESTAMPS, SYMBOL, *FEATURES)
    unknown = [key for key in mapped if key not in allowed]
    if unknown:
        raise ConfigError(
            f"columns may name {', '.join(allowed)}, got {unknown[0]!r}; "
            "write columns={'close': 'name in the file'}"
        )
    stripped = [name.strip().removeprefix("\ufeff") for name in names]
    given: dict[str, int] = {}
    for key, wanted in mapped.items():
        text = str(wanted).strip()
        places = [place for place, name in enumerate(stripped) if name == text]
        only_one(key, places, names, source)
        if not places and text.isdecimal() and 1 <= int(text) <= len(names):
            places = [int(text) - 1]
        if not places:
            listed = ", ".join(quote(name) for name in names[:20])
            raise DataError(
                f"{source}: no column {quote(text)} for {key}; the columns there are {listed}"
            )
        given[key] = places[0]
    return given


def _by_name(
    header: Header,
    allowed: set[int],
    samples: list[list[str]],
    source: str,
    given: dict[str, int],
    notes: list[str],
) -> dict[str, int]:
    """The columns of one section: those given, and the rest by their names."""
    taken = set(given.values())
    found = {
        key: [place for place in places if place in allowed and place not in taken]
        for key, places in known_columns(header.names).items()
        if key not in given and not (key in (DATE, TIME) and TIMESTAMPS in given)
    }
    found = {key: places for key, places in found.items() if places}
    columns = dict(given)
    if TIMESTAMPS not in given:
        columns |= _time_columns(found, header.names, samples, source, notes)
    for key in (*FEATURES, SYMBOL, TICK_VOLUME):
        if key in found:
            only_one(key, found[key], header.names, source)
            columns[key] = found[key][0]
    if "volume" not in columns and TICK_VOLUME in columns:
        columns["volume"] = columns.pop(TICK_VOLUME)
        notes.append("the volume is the number of ticks")
    there = [TIMESTAMPS, *columns] if DATE in columns else list(columns)
    need_columns(there, header.names, source)
    return columns


def _time_columns(
    found: dict[str, list[int]],
    names: Sequence[str],
    samples: list[list[str]],
    source: str,
    notes: list[str],
) -> dict[str, int]:
    """The column of the timestamps, or those of the date and the time of day."""
    dates, times = found.get(DATE, []), found.get(TIME, [])
    both = sorted([*found.get(TIMESTAMPS, []), *dates, *times])
    if len(both) == 2 and len(dates) == 1 and len(times) == 1:
        cells = [row[times[0]] for row in samples if len(row) > times[0]]
        opening = unicodedata.normalize("NFKC", next(iter(cells), "")).strip()
        if _FULL_TIME.fullmatch(opening):
            return {TIMESTAMPS: times[0]}  # as baostock has it: the time repeats the date
        if _CLOCK.fullmatch(opening) and any(len(cell.strip()) > 2 for cell in cells):
            return {DATE: dates[0], TIME: times[0]}
    only_one(TIMESTAMPS, both, names, source)
    if both:
        return {TIMESTAMPS: both[0]}
    unnamed = plain_name(names[0]) in ("", "unnamed: 0", "index level 0")
    if unnamed and samples and re.match(r"\d{4}\D\d{1,2}\D|\d{8}", samples[0][0].strip()):
        notes.append("the first column, without a name, is the timestamps")
        return {TIMESTAMPS: 0}
    return {}


def _units(names: Sequence[str], section: Section) -> dict[str, str]:
    units = {key: split_unit(plain_name(names[at]))[1] for key, at in section.columns.items()}
    return {key: unit for key, unit in units.items() if unit and key in ("volume", "amount")}


def _without_names(
    header: Header, samples: list[list[str]], source: str, mapped: Mapping[str, str]
) -> Layout:
    """The layout of a file without a header, by what its first row holds."""
    first = [cell.strip() for cell in samples[0]]
    prices = dict(zip(("open", "high", "low", "close", "volume"), range(1, 6), strict=True))
    if mapped:
        columns = _given(header.names, source, mapped)
        need_columns(list(columns), header.names, source)
        return Layout(NUMBERED, (Section(columns),))
    if _EPOCH.fullmatch(first[0]) and len(first) == 12 and _EPOCH.fullmatch(first[6]):
        columns = {TIMESTAMPS: 0, **prices, "amount": 7}
        return Layout("Binance", (Section(columns),))
    if len(first) == 6 and (_EPOCH.fullmatch(first[0]) or _HISTDATA.fullmatch(first[0])):
        name = "HistData" if " " in first[0] else "ccxt"
        return Layout(name, (Section({TIMESTAMPS: 0, **prices}),))
    if len(first) == 7 and _MONTH_DAY.fullmatch(first[0]) and _CLOCK.fullmatch(first[1]):
        moved = {key: place + 1 for key, place in prices.items()}
        return Layout("MetaTrader 4", (Section({DATE: 0, TIME: 1, **moved}),))
    raise DataError(
        f"{source}: no header, and the {len(first)} columns are of no source that is known; number "
        "them with columns={'timestamps': '1', 'open': '2', ...} (--columns)"
    )
