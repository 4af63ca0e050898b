"""Arrays in one file: they come back as they were, and a damaged file is never taken for sound."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from markets import market_of

from kronos.data import Windows
from kronos.data import arrays as arrays_module
from kronos.data.arrays import Blocks, Pages, is_array_file, open_arrays, write_arrays
from kronos.data.mapped import MappedMarket, open_market, write_market
from kronos.errors import DataError

DTYPES = st.sampled_from(["<i8", "<f8", "|u1", "<u2", ">i4"]).map(np.dtype)
SHAPES = arrays_of.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6)


@settings(max_examples=100)
@given(st.dictionaries(st.text(max_size=8), arrays_of.arrays(DTYPES, SHAPES), max_size=4))
def test_what_is_written_comes_back(tmp_path_factory, given):
    path = tmp_path_factory.getbasetemp() / "any.arrays"
    write_arrays(path, given, {"note": "行情"})
    held = open_arrays(path)
    assert held.about == {"note": "行情"}
    assert list(held.arrays) == list(given)
    for name, array in given.items():
        np.testing.assert_array_equal(held.arrays[name], array)
        assert not held.arrays[name].flags.writeable


def test_blocks_are_the_array_they_make_up(tmp_path):
    whole = np.arange(42, dtype=np.uint16).reshape(7, 3, 2)
    write_arrays(tmp_path / "whole", {"ids": whole}, {})
    blocks = Blocks(whole.shape, whole.dtype, iter([whole[:3], whole[3:4], whole[4:]]))
    write_arrays(tmp_path / "blocks", {"ids": blocks}, {})
    assert (tmp_path / "blocks").read_bytes() == (tmp_path / "whole").read_bytes()


def test_each_array_begins_at_a_multiple_of_64(tmp_path):
    write_arrays(tmp_path / "a", {"one": np.arange(3, dtype=np.uint8), "two": np.arange(5.0)}, {})
    for array in open_arrays(tmp_path / "a").arrays.values():
        assert array.__array_interface__["data"][0] % 64 == 0


@settings(max_examples=200)
@given(st.data())
def test_any_changed_byte_and_any_lost_end_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.arrays"
    write_arrays(path, {"a": np.arange(20.0), "b": np.arange(3, dtype=np.uint8)}, {"k": 1})
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:place]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    if _in_the_fill_of_the_header(content, place):
        return
    with pytest.raises(DataError, match=r"(is damaged: .*|is not a file of ours); "):
        open_arrays(path)


def _in_the_fill_of_the_header(content, place):
    """The zeros between header and arrays, which nobody reads."""
    length = int.from_bytes(content[16:24], "little")
    end = 16 + 12 + length
    return len(content) > end and end <= place < end + (-end % 64)


def test_other_files_are_told_from_ours(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("date,open\n")
    assert not is_array_file(path)
    assert not is_array_file(tmp_path / "none")
    assert not is_array_file(tmp_path)
    with pytest.raises(DataError, match=r"a\.csv is not a file of ours; remove it"):
        open_arrays(path)
    with pytest.raises(DataError, match=r"cannot read .*none: No such file"):
        open_arrays(tmp_path / "none")


def test_a_disk_that_fills_up_leaves_nothing(tmp_path):
    def pieces():
        yield np.zeros(2)
        raise OSError(28, "No space left on device")

    path = tmp_path / "a"
    write_arrays(path, {"a": np.arange(3.0)}, {})
    before = path.read_bytes()
    with pytest.raises(OSError, match="No space left"):
        write_arrays(path, {"a": Blocks((4,), np.dtype("<f8"), pieces())}, {})
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


# ---- a market


def test_a_market_comes_back_mapped(tmp_path):
    market = market_of(30, 20)
    write_market(tmp_path / "m.bars", market, {"report": {"rows": 50}})
    mapped = open_market(tmp_path / "m.bars")
    assert mapped.symbols == market.symbols
    assert mapped.zone is None
    assert mapped.about == {"report": {"rows": 50}}
    for name in ("offsets", "times", "features", "stamps"):
        np.testing.assert_array_equal(getattr(mapped, name), getattr(market, name))
        assert getattr(mapped, name).dtype == getattr(market, name).dtype
    assert mapped.frame("S1").equals(market.frame("S1"))


def test_a_copy_in_another_process_is_the_name_of_the_file(tmp_path):
    write_market(tmp_path / "m.bars", market_of(3000))
    mapped = open_market(tmp_path / "m.bars")
    sent = pickle.dumps(Windows(mapped, 20, 5))
    assert len(sent) < 3000
    copy = pickle.loads(sent)
    assert isinstance(copy.market, MappedMarket)
    expected = Windows(market_of(3000), 20, 5).batch([7, 2000])
    np.testing.assert_array_equal(copy.batch([7, 2000]).features, expected.features)


def test_a_file_of_other_arrays_is_no_market(tmp_path):
    write_arrays(tmp_path / "t", {"ids": np.zeros(3)}, {"kind": "tokens"})
    with pytest.raises(DataError, match=r"holds 'tokens', not bars"):
        open_market(tmp_path / "t")


class Mapping:
    """Counts what is advised."""

    def __init__(self):
        self.advised = []

    def madvise(self, advice):
        self.advised.append(advice)


def test_pages_are_let_go_of_once_files_take_64_mib_more(tmp_path, monkeypatch):
    (tmp_path / "f").write_bytes(bytes(10_000))
    # at first; a batch below, one above, and after it was let go of; less, as another file left;
    # and 64 MiB above that
    mib = iter([100, 164, 165, 110, 50, 114, 115, 50])
    monkeypatch.setattr(arrays_module, "_resident_files", lambda: next(mib) << 20)
    with (tmp_path / "f").open("rb") as file:
        pages = Pages(file)
    pages.mapping = mapping = Mapping()
    for expected in (0, 1, 1, 1, 2):
        pages.bound()
        assert len(mapping.advised) == expected
    assert next(mib, None) is None


def test_a_system_without_the_numbers_or_the_advice_keeps_its_pages(tmp_path, monkeypatch):
    (tmp_path / "f").write_bytes(bytes(10_000))
    monkeypatch.setattr(arrays_module, "_STATM", str(tmp_path / "none"))
    with (tmp_path / "f").open("rb") as file:
        pages = Pages(file)
    pages.mapping = mapping = Mapping()
    pages.bound()
    monkeypatch.setattr(arrays_module, "_resident_files", lambda: 1 << 40)
    pages._advice = None
    pages.bound()
    assert mapping.advised == []


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_the_pages_of_a_file_that_was_read_do_leave(tmp_path):
    with (tmp_path / "f").open("w+b") as file:
        file.truncate(96 << 20)
        pages = Pages(file)
        before = arrays_module._resident_files()
        assert sum(pages.mapping[:: 1 << 12]) == 0
        grown = arrays_module._resident_files() - before
        pages.bound()
    assert grown > 90 << 20
    assert arrays_module._resident_files() - before < 8 << 20
    assert pages.mapping[5_000_000] == 0, "and come back when they are asked for"
