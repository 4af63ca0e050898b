"""Files to sound bars: each read in turn, put together, repaired as asked, and checked."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kronos.data.columns import DATE, SYMBOL, TICK_VOLUME, TIME, TIMESTAMPS, quote
from kronos.data.options import ReadOptions
from kronos.data.reading.checks import check_values
from kronos.data.reading.faults import Fault, Findings
from kronos.data.reading.folders import source_files, symbol_of
from kronos.data.reading.gather import Bars, gather
from kronos.data.reading.pieces import Piece, read_piece
from kronos.data.reading.repairs import derive_amounts, fill_missing, put_in_order, widen
from kronos.data.reading.table import Table, read_table
from kronos.data.reading.units import convert_units
from kronos.data.reading.zones import check_zone
from kronos.errors import ConfigError, DataError

_CHOICES = {"dedupe": ("first", "last"), "fill": ("ffill", "drop")}


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What is said of one file, for the report."""

    file: str
    layout: str
    encoding: str
    rows: int
    columns: tuple[tuple[str, str], ...]
    """Our name and the file's, of each column in use."""
    left_out: tuple[str, ...]
    units: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """Bars of a source, and what is to be told of them."""

    bars: Bars | None
    """None where none is left, which only a collecting `Findings` lets pass."""
    files: tuple[FileFacts, ...]


def load(source: Path | str, options: ReadOptions, findings: Findings) -> Loaded:
    """Read, repair and check the bars of a source, faults going to `findings` in this order:

    each file in turn (rows of another length, cells without a symbol, the first row with a cell
    that is no number, timestamps), zones that differ, then the rules of `checks`.

    Raises ConfigError for options that are none, DataError for what cannot be read at all.
    """
    check_options(options)
    pieces: list[Piece] = []
    facts: list[FileFacts] = []
    named: dict[str, Path] = {}
    for path in source_files(source):
        read, about = _read_file(path, named, options, findings)
        pieces += read
        if read or options.symbol is None:
            facts.append(about)
    if not pieces:
        _explain_nothing(source, options, findings)
        return Loaded(None, tuple(facts))
    _one_zone(pieces, findings)
    bars = gather(pieces)
    put_in_order(bars, options, findings)
    fill_missing(bars, options, findings)
    widen(bars, options, findings)
    derive_amounts(bars)
    check_values(bars, findings)
    return Loaded(bars if len(bars) else None, tuple(facts))


def check_options(options: ReadOptions) -> None:
    """ConfigError for a choice or a time zone that is none."""
    for name, allowed in _CHOICES.items():
        value = getattr(options, name)
        if value is not None and value not in allowed:
            raise ConfigError(f"{name} must be {' or '.join(allowed)}, got {value!r:.60}")
    if options.timezone is not None:
        check_zone(options.timezone)


def _explain_nothing(source: Path | str, options: ReadOptions, findings: Findings) -> None:
    """DataError where no bar is left, unless faults that are collected say why."""
    if options.symbol is not None and options.symbol not in findings.symbols:
        shown = ", ".join(list(findings.symbols)[:10])
        more = ", ..." if len(findings.symbols) > 10 else ""
        raise DataError(
            f"{source}: no symbol {quote(options.symbol)}; there are {shown or 'none'}{more}"
        )
    if findings.is_strict:
        raise DataError(f"{source}: all bars have missing cells; fill them with fill='ffill'")


def _has_symbols(table: Table) -> bool:
    part = table.layout.sections[0]
    return SYMBOL in part.columns or part.symbol is not None


def _one_file_each(named: dict[str, Path], symbol: str, path: Path) -> None:
    """DataError where a file without a symbol column has the name of one before."""
    other = named.setdefault(symbol, path)
    if other is not path:
        raise DataError(
            f"{other} and {path} would both be the symbol {quote(symbol)}; rename one, or give "
            "them a column with the symbol"
        )


def _read_file(
    path: Path, named: dict[str, Path], options: ReadOptions, findings: Findings
) -> tuple[list[Piece], FileFacts]:
    table = read_table(path, options.columns)
    symbol = symbol_of(path)
    if not _has_symbols(table):
        _one_file_each(named, symbol, path)
    _refuse_ragged(table, findings)
    facts = _facts(table)
    pieces: list[Piece] = []
    for section in table.layout.sections:
        piece = read_piece(table, section, symbol, options, findings)
        if piece is None:
            continue
        units, notes = convert_units(table.layout, piece.columns, piece.symbols)
        facts = replace(
            facts,
            units=tuple(dict.fromkeys([*facts.units, *units])),
            notes=tuple(dict.fromkeys([*facts.notes, *notes])),
        )
        pieces.append(piece)
    return pieces, facts


def _facts(table: Table) -> FileFacts:
    part = table.layout.sections[0]
    shown = {DATE: TIMESTAMPS, TIME: TIMESTAMPS, TICK_VOLUME: "volume"}
    columns: dict[str, str] = {}
    for key, place in part.columns.items():
        ours = shown.get(key, key)
        name = table.names[place]
        columns[ours] = f"{columns[ours]} + {name}" if ours in columns else name
    used = {place for each in table.layout.sections for place in each.columns.values()}
    notes = list(table.layout.notes)
    for key, words in (("volume", "is 0"), ("amount", "is volume times the mean price")):
        if key not in part.columns:
            notes.append(f"no column for {key}: it {words}")
    return FileFacts(
        table.source.name,
        table.layout.name,
        table.encoding,
        table.count + len(table.ragged),
        tuple(columns.items()),
        tuple(name for place, name in enumerate(table.names) if place not in used),
        notes=tuple(notes),
    )


def _refuse_ragged(table: Table, findings: Findings) -> None:
    if not table.ragged:
        return
    row, cells = table.ragged[0]
    name, line = table.source.name, table.source.line
    end = None if line is None else line(row)
    message = (
        f"{name}: row {row + 1} (line {end}) has {cells} cells, the header {len(table.names)}; "
        "is there a thousands separator? Write numbers without, or in quotes"
    )
    fault = Fault(
        kind="row length", column=None, count=len(table.ragged), message=message, file=name,
        row=row + 1, line=end, text=f"{cells} cells",
    )  # fmt: skip
    findings.count("row length", len(table.ragged))
    findings.add(fault)


def _one_zone(pieces: Iterable[Piece], findings: Findings) -> None:
    """A fault where the clocks of two files are in two zones."""
    first, *others = pieces
    other = next((piece for piece in others if piece.zone != first.zone), None)
    if other is None:
        return
    zones = [
        "no time zone" if zone is None else f"the zone {zone}" for zone in (other.zone, first.zone)
    ]
    message = (
        f"{other.source.name} is in {zones[0]} and {first.source.name} in {zones[1]}; put all into "
        "one with timezone='Asia/Shanghai' (--timezone)"
    )
    count = sum(piece.zone != first.zone for piece in others)
    findings.add(
        Fault(kind="zone", column=TIMESTAMPS, count=count, message=message, file=other.source.name)
    )
