"""The command line. Handlers translate; each imports what it needs when it is called."""

from kronos.cli import capacity, cards, data, forecasting, training  # each adds its commands
from kronos.cli.app import app, main

__all__ = ["app", "capacity", "cards", "data", "forecasting", "main", "training"]
