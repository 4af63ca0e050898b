"""Whether a model is equally good everywhere, or good on average only."""

from numpy.typing import ArrayLike

from kronos.errors import DataError
from kronos.evaluate.metrics import finite


def stability_score(window_mae: ArrayLike) -> float:
    """1 / (1 + s / m) of the mean m and the standard deviation s of the windows' MAE, (W,).

    In (0, 1]: 1 where every window is forecast equally well or badly, 0.5 where the errors
    scatter as much as they are large. It says nothing about how large they are, only how
    much they depend on the window; no unit. s is biased (divided by W), so one window scores
    1, as do errors of 0 throughout. Raises DataError for errors that are negative, not
    finite or none.
    """
    errors = finite("window_mae", window_mae)
    if errors.min() < 0:
        raise DataError(f"window_mae must not be negative, got {errors.min():.9g}")
    largest = errors.max()
    if largest == 0:
        return 1.0
    errors = errors / largest  # so that no square under- or overflows
    return float(1.0 / (1.0 + errors.std() / errors.mean()))
