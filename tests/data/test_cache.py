"""The cache: what was read once is opened the next time, and never in place of something else."""

import os

import numpy as np
import pytest

from kronos.data import ReadOptions, load_market
from kronos.data import cache as cache_module
from kronos.data.mapped import MappedMarket, write_market
from kronos.errors import DataError

HEADER = "timestamps,open,high,low,close,volume"


def write(path, count=5, first_open="2.0"):
    rows = [f"2024-01-{day + 1:02},2.0,3,1,2,{day}" for day in range(count)]
    rows[0] = rows[0].replace("2.0", first_open)
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return path


def test_the_first_start_writes_and_the_second_opens(tmp_path, monkeypatch):
    path, cache = write(tmp_path / "a.csv"), tmp_path / "cache"
    plain = load_market(path)
    assert plain.how == "read"
    first = load_market(path, cache=cache)
    assert first.how == "written"
    assert isinstance(first.market, MappedMarket)
    monkeypatch.setattr(cache_module, "read_market", lambda *given: pytest.fail("read again"))
    second = load_market(path, cache=cache)
    assert second.how == "cached"
    assert second.report == first.report == plain.report
    assert second.report["rows"] == 5
    for one in (first, second):
        assert one.market.symbols == plain.market.symbols == ("a",)
        np.testing.assert_array_equal(one.market.features, plain.market.features)
        np.testing.assert_array_equal(one.market.times, plain.market.times)
    assert len(list(cache.iterdir())) == 1


def test_a_changed_file_is_read_anew_though_its_size_and_time_stay(tmp_path):
    path, cache = write(tmp_path / "a.csv"), tmp_path / "cache"
    load_market(path, cache=cache)
    before = path.stat()
    write(path, first_open="2.5")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    loaded = load_market(path, cache=cache)
    assert loaded.how == "written"
    assert loaded.market.features[0, 0] == 2.5
    write(path)
    assert load_market(path, cache=cache).how == "cached", "the earlier content again"


def test_every_byte_of_a_file_counts_and_its_place(tmp_path, monkeypatch):
    """Parts of a file are digested side by side."""
    monkeypatch.setattr(cache_module, "_HASHED_AT_ONCE", 4)
    contents = [b"aaaabbbbcc", b"bbbbaaaacc", b"aaaabbbbcd", b"aaaabbbbc", b"aaaabbbb", b"", b"\0"]
    names = set()
    for content in contents:
        (tmp_path / "a.csv").write_bytes(content)
        names.add(cache_module.cache_path(tmp_path / "a.csv", ReadOptions(), tmp_path))
    assert len(names) == len(contents)


def test_another_name_is_another_symbol(tmp_path):
    cache = tmp_path / "cache"
    load_market(write(tmp_path / "a.csv"), cache=cache)
    loaded = load_market(write(tmp_path / "b.csv"), cache=cache)
    assert loaded.how == "written"
    assert loaded.market.symbols == ("b",)


def test_a_copy_elsewhere_is_the_same(tmp_path):
    cache = tmp_path / "cache"
    load_market(write(tmp_path / "a.csv"), cache=cache)
    (tmp_path / "other").mkdir()
    assert load_market(write(tmp_path / "other" / "a.csv"), cache=cache).how == "cached"


def test_other_options_are_another_reading(tmp_path):
    path, cache = write(tmp_path / "a.csv"), tmp_path / "cache"
    options = [
        ReadOptions(),
        ReadOptions(repair=True),
        ReadOptions(columns={"volume": "volume"}),
        ReadOptions(timezone="Asia/Shanghai"),
    ]
    assert [load_market(path, one, cache).how for one in options] == ["written"] * 4
    assert [load_market(path, one, cache).how for one in options] == ["cached"] * 4
    assert load_market(path, options[3], cache).market.zone == "Asia/Shanghai"


def test_a_folder_with_one_more_file_is_another(tmp_path):
    folder, cache = tmp_path / "bars", tmp_path / "cache"
    folder.mkdir()
    write(folder / "a.csv")
    load_market(folder, cache=cache)
    write(folder / "b.csv", count=3)
    loaded = load_market(folder, cache=cache)
    assert loaded.how == "written"
    assert loaded.market.symbols == ("a", "b")
    assert load_market(folder, cache=cache).how == "cached"


@pytest.mark.parametrize("damage", ["short", "changed", "foreign", "empty"])
def test_a_damaged_or_foreign_file_is_replaced(tmp_path, damage):
    path, cache = write(tmp_path / "a.csv"), tmp_path / "cache"
    expected = load_market(path, cache=cache).market.features.copy()
    (kept,) = cache.iterdir()
    content = bytearray(kept.read_bytes())
    content[-20] ^= 1
    damaged = {
        "short": kept.read_bytes()[:-1],
        "changed": bytes(content),
        "foreign": b"date,open\n",
        "empty": b"",
    }
    kept.write_bytes(damaged[damage])
    mended = load_market(path, cache=cache)
    assert mended.how == "mended"
    np.testing.assert_array_equal(mended.market.features, expected)
    assert load_market(path, cache=cache).how == "cached"


def test_a_file_that_grows_while_it_is_read_is_not_kept(tmp_path, monkeypatch):
    path, cache = write(tmp_path / "a.csv"), tmp_path / "cache"
    read = cache_module.read_market

    def growing(source, options):
        found = read(source, options)
        write(path, count=6)
        return found

    monkeypatch.setattr(cache_module, "read_market", growing)
    with pytest.raises(DataError, match=r"a\.csv changed while it was read; try again"):
        load_market(path, cache=cache)
    assert not cache.exists()


def test_bars_that_cannot_be_used_leave_nothing(tmp_path):
    path, cache = write(tmp_path / "a.csv", first_open="-2"), tmp_path / "cache"
    with pytest.raises(DataError, match="open"):
        load_market(path, cache=cache)
    assert not cache.exists()


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv"):
        load_market(tmp_path / "none.csv", cache=tmp_path / "cache")


def test_a_file_of_bars_is_opened_itself(tmp_path):
    market = load_market(write(tmp_path / "a.csv")).market
    write_market(tmp_path / "mine.bars", market)
    loaded = load_market(tmp_path / "mine.bars", cache=tmp_path / "cache")
    assert loaded.how == "cached"
    assert loaded.report == {}
    np.testing.assert_array_equal(loaded.market.features, market.features)
    assert not (tmp_path / "cache").exists()
    with pytest.raises(DataError, match=r"were read already; options come too late"):
        load_market(tmp_path / "mine.bars", ReadOptions(sort=True))
