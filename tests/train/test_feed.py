"""Feeds: what an epoch shows, whatever the workers and ranks, and from wherever it goes on."""

import multiprocessing
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.config import TrainingConfig
from kronos.data import Market, Windows
from kronos.errors import ConfigError
from kronos.train.data import load_data
from kronos.train.feed import BarSource, Feed, Position, default_workers, to_device


def numbered_market(lengths):
    """A market whose bars carry their own number in their stamps, to be told apart in a batch."""
    offsets = np.cumsum([0, *lengths])
    count = int(offsets[-1])
    digits = np.arange(count)[:, None] // 200 ** np.arange(5) % 200
    rng = np.random.default_rng(0)
    return Market(
        symbols=tuple(f"S{place}" for place in range(len(lengths))),
        offsets=offsets,
        times=np.concatenate([np.arange(length) for length in lengths]),
        features=rng.normal(size=(count, 6)) + 50,
        stamps=digits.astype(np.uint8),
        zone=None,
    )


def training_of(**settings):
    values = {"window": 3, "horizon": 1, "batch_size": 2, "steps": 1, "learning_rate": 1.0}
    return TrainingConfig(**(values | settings))


def feed_of(windows, training, **options):
    return Feed(BarSource(windows, windows.starts), training, "cpu", **options)


def starts_of(batch):
    """The bars at which a batch's samples begin, read from their stamps."""
    return (batch.stamps[:, 0].numpy() * 200 ** np.arange(5)).sum(axis=1).tolist()


def taken(feed, batches):
    return [starts_of(batch) for batch, _ in feed.take(batches)]


@settings(max_examples=30)
@given(
    lengths=st.lists(st.integers(1, 14), min_size=1, max_size=5).filter(lambda x: max(x) >= 8),
    window=st.integers(1, 4),
    workers=st.integers(0, 3),
    ranks=st.integers(1, 4),
    epochs=st.integers(1, 2),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_an_epoch_is_each_window_once_whatever_the_workers_and_ranks(
    lengths, window, workers, ranks, epochs, seed, data
):
    windows = Windows(numbered_market(lengths), window, 1)
    every = Counter(windows.starts.every().tolist())
    ranks = min(ranks, len(windows))
    samples = data.draw(st.none() | st.integers(ranks, len(windows)))
    shown = len(windows) if samples is None else samples
    # what an epoch leaves out is a rest smaller than a batch: here there is none
    divisors = [size for size in range(1, shown // ranks + 1) if shown % (size * ranks) == 0]
    if not divisors:
        samples = shown = shown - shown % ranks
        divisors = [1]
    training = training_of(
        batch_size=data.draw(st.sampled_from(divisors)), seed=seed, samples_per_epoch=samples
    )
    feeds = [
        feed_of(windows, training, workers=workers, rank=rank, ranks=ranks) for rank in range(ranks)
    ]
    alone = [feed_of(windows, training, rank=rank, ranks=ranks) for rank in range(ranks)]
    for _ in range(epochs):
        count = feeds[0].batches_per_epoch
        batches = [taken(feed, count) for feed in feeds]
        drawn = Counter(start for one in batches for batch in one for start in batch)
        assert set(drawn.values()) == {1}
        assert sum(drawn.values()) == shown
        assert drawn.keys() <= every.keys()
        if samples is None:
            assert drawn == every
        assert batches == [taken(feed, count) for feed in alone], "workers change nothing"


def test_the_next_epoch_is_in_another_order_and_a_rest_is_left_out(small_run):
    config = small_run(batch_size=8)
    data = load_data(config)
    feed = Feed(BarSource(data.windows, data.train), config.training, "cpu")
    per_epoch, left_out = divmod(len(data.train), 8)
    assert left_out
    assert feed.batches_per_epoch == per_epoch
    epochs = [feed.take(per_epoch) for _ in range(2)]
    assert {count for epoch in epochs for _, count in epoch} == {8}
    one, other = (torch.cat([batch.features for batch, _ in epoch]) for epoch in epochs)
    assert not torch.equal(one, other)
    assert len(one.unique(dim=0)) == len(other.unique(dim=0)) == per_epoch * 8


def test_the_seed_decides_the_order():
    windows = Windows(numbered_market([30]), 3, 1)
    one, again, other = (taken(feed_of(windows, training_of(seed=seed)), 5) for seed in (3, 3, 4))
    assert one == again
    assert one != other


@pytest.mark.parametrize("workers", [0, 1])
def test_a_feed_goes_on_where_another_stood(workers):
    windows = Windows(numbered_market([30, 9]), 3, 1)
    training = training_of(batch_size=4)
    whole = feed_of(windows, training)
    per_epoch = whole.batches_per_epoch
    positions, batches = [], []
    for _ in range(2 * per_epoch + 1):
        positions.append(whole.position)
        batches += taken(whole, 1)
    assert positions[0] == Position(0, 0)
    assert positions[per_epoch] == Position(1, 0)
    for place in (1, per_epoch - 1, per_epoch, per_epoch + 2):
        feed = feed_of(windows, training, workers=workers, start=positions[place])
        assert taken(feed, len(batches) - place) == batches[place:]


def test_the_workers_end_with_the_feed():
    windows = Windows(numbered_market([30]), 3, 1)
    feed = feed_of(windows, training_of(), workers=2)
    feed.take(1)
    mine = set(multiprocessing.active_children())
    assert len(mine) == 2
    del feed
    assert not mine & set(multiprocessing.active_children())


def test_waiting_is_counted_in_take_alone(monkeypatch):
    seconds = iter([0.25, 0.5])
    windows = Windows(numbered_market([30]), 3, 1)
    feed = feed_of(windows, training_of())
    monkeypatch.setattr(feed._stopwatch, "timed", lambda call: (call(), next(seconds)))
    assert feed.seconds_waited == 0.0
    feed.take(1)
    feed.take(3)
    assert feed.seconds_waited == 0.75


def test_batches_move_as_what_they_are():
    windows = Windows(numbered_market([30]), 3, 1)
    batch = BarSource(windows, windows.starts)[np.array([0, 5])]
    moved = to_device(batch, "meta")
    assert type(moved) is type(batch)
    assert {tensor.device.type for tensor in moved} == {"meta"}
    assert moved.features.shape == (2, 5, 6)


def test_T16_more_samples_than_windows_are_refused():
    windows = Windows(numbered_market([30]), 3, 1)
    with pytest.raises(ConfigError, match=r"samples_per_epoch must be .* 26; got 27"):
        feed_of(windows, training_of(samples_per_epoch=27))


@pytest.mark.parametrize(
    ("cores", "workers"), [(1, 0), (2, 0), (3, 0), (4, 1), (7, 1), (8, 2), (128, 2)]
)
def test_workers_follow_from_the_cores(cores, workers):
    assert default_workers(cores) == workers


def test_the_cores_are_those_this_process_may_use(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert default_workers() == 2
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert default_workers() == 1
