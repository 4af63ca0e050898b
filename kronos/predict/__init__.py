"""Forecasts of frames of bars."""

from kronos.predict.options import ForecastOptions
from kronos.predict.predictor import KronosPredictor

__all__ = ["ForecastOptions", "KronosPredictor"]
