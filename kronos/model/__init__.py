"""The Kronos model: tokenizer and forecaster (arXiv 2508.02739)."""

from kronos.model.forecaster import Kronos
from kronos.model.tokenizer import KronosTokenizer

__all__ = ["Kronos", "KronosTokenizer"]
