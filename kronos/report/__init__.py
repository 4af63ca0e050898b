"""Reports from plain values: tables for terminals, Markdown, CSV, JSON and one HTML page."""

from kronos.report.candles import ForecastChart, check_chart_path, write_forecast_chart
from kronos.report.estimates import estimate_text, snapshot_text
from kronos.report.figures import MemoryCurve, write_figure
from kronos.report.files import write_report
from kronos.report.tables import capacity_table, card_table, facts_table, plain_table

__all__ = [
    "ForecastChart",
    "MemoryCurve",
    "capacity_table",
    "card_table",
    "check_chart_path",
    "estimate_text",
    "facts_table",
    "plain_table",
    "snapshot_text",
    "write_figure",
    "write_forecast_chart",
    "write_report",
]
