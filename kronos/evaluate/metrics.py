"""How far forecasts lie from what came, and whether they chose the right side.

No metric is ever NaN: values that are not finite, shapes that differ and empty arrays are
errors, since a NaN passes every comparison with a limit in silence.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kronos.errors import DataError


def mae(actual: ArrayLike, forecast: ArrayLike) -> float:
    """Mean absolute error of two arrays of one shape, in their unit."""
    return float(np.abs(_errors(actual, forecast)).mean())


def rmse(actual: ArrayLike, forecast: ArrayLike) -> float:
    """Root of the mean squared error of two arrays of one shape, in their unit."""
    errors = _errors(actual, forecast)
    largest = float(np.abs(errors).max())
    if largest == 0.0:
        return 0.0
    # scaled first, so that squares of very small or very large errors stay in float64
    return largest * float(np.sqrt(np.square(errors / largest).mean()))


def direction_accuracy(
    last_close: ArrayLike, actual_close: ArrayLike, forecast_close: ArrayLike
) -> float:
    """Share of bars whose forecast lies on the side of the last known close where the bar came.

    last_close (W,) of W windows; actual_close and forecast_close (W,) or (W, H) of H bars each.
    The sides are above, below and exactly at the last close: a bar that did not move is right
    only if the forecast did not move either, and a forecast that never moves earns nothing
    from bars that do. Compare in one precision: a float32 forecast rarely equals a float64 close.
    """
    actual = finite("actual_close", actual_close)
    forecast = finite("forecast_close", forecast_close)
    last = finite("last_close", last_close)
    same_shape(actual, forecast)
    if last.ndim != 1 or actual.ndim not in (1, 2) or len(last) != len(actual):
        raise DataError(
            f"last_close has shape {last.shape}, actual_close {actual.shape}; "
            "give (W,) and (W,) or (W, H)"
        )
    if actual.ndim == 2:
        last = last[:, None]
    return float((np.sign(actual - last) == np.sign(forecast - last)).mean())


def finite(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """`values` as float64; DataError naming `name` where it is empty or not all finite."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise DataError(f"{name} is empty (shape {array.shape}); give at least one value")
    bad = ~np.isfinite(array)
    if bad.any():
        first = tuple(int(axis) for axis in np.argwhere(bad)[0])
        raise DataError(
            f"{name}: {bad.sum()} of {array.size} values are not finite, first at index {first}; "
            "score only what was forecast and has come"
        )
    return array


def same_shape(actual: NDArray[np.float64], forecast: NDArray[np.float64]) -> None:
    """DataError with both shapes unless they are one."""
    if actual.shape != forecast.shape:
        raise DataError(
            f"actual has shape {actual.shape}, forecast {forecast.shape}; give the same bars"
        )


def _errors(actual: ArrayLike, forecast: ArrayLike) -> NDArray[np.float64]:
    left, right = finite("actual", actual), finite("forecast", forecast)
    same_shape(left, right)
    return right - left
