"""A file is the old one or the new one, never half of one."""

import os
import stat
import threading

import pytest

from kronos import files
from kronos.files import atomic_path, write_text


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "report.csv"
    path.write_text("old", encoding="utf-8")
    return path


def _only_old_is_left(path):
    assert path.read_text(encoding="utf-8") == "old"
    assert os.listdir(path.parent) == [path.name]


def test_text_is_written_as_utf8_with_its_line_ends(tmp_path):
    path = tmp_path / "行情 🕯.csv"
    write_text(path, "a\n行情\r\n🕯")
    assert path.read_bytes() == "a\n行情\r\n🕯".encode()
    assert os.listdir(tmp_path) == [path.name]


def test_parents_are_made_and_a_text_is_a_path_too(tmp_path):
    write_text(str(tmp_path / "a" / "b" / "c.txt"), "new")
    assert (tmp_path / "a" / "b" / "c.txt").read_text(encoding="utf-8") == "new"


def test_a_relative_path_is_one_of_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text("here.txt", "new")
    assert (tmp_path / "here.txt").read_text(encoding="utf-8") == "new"


def test_until_the_end_of_the_block_readers_see_the_old_file(old):
    with atomic_path(old) as temporary:
        temporary.write_text("new", encoding="utf-8")
        assert temporary.parent == old.parent
        assert old.read_text(encoding="utf-8") == "old"
    assert old.read_text(encoding="utf-8") == "new"
    assert os.listdir(old.parent) == [old.name]


@pytest.mark.parametrize(
    "error", [ValueError("bad"), OSError("bad"), KeyboardInterrupt(), SystemExit(1)]
)
def test_an_error_in_the_block_leaves_the_old_file(old, error):
    def write():
        with atomic_path(old) as temporary:
            temporary.write_text("half", encoding="utf-8")
            raise error

    with pytest.raises(type(error)) as caught:
        write()
    assert caught.value is error
    assert str(error) in ("bad", "", "1")
    _only_old_is_left(old)


def test_a_text_that_cannot_be_encoded_leaves_the_old_file(old):
    with pytest.raises(UnicodeEncodeError):
        write_text(old, "half \ud800")
    _only_old_is_left(old)


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_disk_that_fails_leaves_the_old_file_and_is_told_by_its_name(old, monkeypatch, call):
    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, call, fail)
    with pytest.raises(OSError, match="No space left") as caught:
        write_text(old, "new")
    assert caught.value.filename == str(old)
    monkeypatch.undo()
    _only_old_is_left(old)


def test_a_full_disk_leaves_the_old_file_and_is_told_by_its_name(old):
    def write():
        with atomic_path(old) as temporary, temporary.open("w") as file:
            file.write("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        write()
    assert caught.value.filename == str(old)
    _only_old_is_left(old)


def test_an_error_about_another_file_keeps_its_name(old):
    with pytest.raises(FileNotFoundError) as caught, atomic_path(old):
        (old.parent / "absent").read_bytes()
    assert caught.value.filename == str(old.parent / "absent")


def test_a_block_that_writes_nothing_makes_an_empty_file(old):
    with atomic_path(old):
        pass
    assert old.read_bytes() == b""


def test_a_temporary_that_the_block_removed_leaves_the_old_file(old):
    with pytest.raises(FileNotFoundError), atomic_path(old) as temporary:
        temporary.unlink()
    _only_old_is_left(old)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_follow_the_umask(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        write_text(tmp_path / "new.txt", "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.txt").stat().st_mode) == mode


def test_the_umask_of_other_threads_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the whole process would have it"))
    write_text(tmp_path / "new.txt", "new")


def test_concurrent_writers_never_mix(tmp_path):
    path = tmp_path / "shared.txt"
    texts = [str(number) * 50_000 for number in range(8)]
    write_text(path, texts[0])
    seen, writing = set(), threading.Event()

    def read():
        while not writing.is_set():
            seen.add(path.read_text(encoding="utf-8"))

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write_text, args=(path, text)) for text in texts * 4]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    writing.set()
    reader.join()
    assert seen <= set(texts)
    assert path.read_text(encoding="utf-8") in texts
    assert os.listdir(tmp_path) == [path.name]


def test_a_link_stays_a_link_to_the_new_content(old, tmp_path):
    elsewhere = tmp_path / "links"
    elsewhere.mkdir()
    link = elsewhere / "link.csv"
    link.symlink_to(old)
    write_text(link, "new")
    assert link.is_symlink()
    assert old.read_text(encoding="utf-8") == "new"
    assert os.listdir(elsewhere) == ["link.csv"]


def test_a_link_to_nothing_makes_what_it_points_to(tmp_path):
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / "later" / "real.csv")
    write_text(link, "new")
    assert (tmp_path / "later" / "real.csv").read_text(encoding="utf-8") == "new"


def test_the_longest_name_a_folder_takes_is_taken(tmp_path):
    path = tmp_path / ("é" * 127)  # 254 bytes
    write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "new"


def test_a_folder_is_not_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        write_text(tmp_path / "folder", "new")
    assert caught.value.filename == str(tmp_path / "folder")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_device_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        write_text(tmp_path / "pipe", "new")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_file_in_the_place_of_a_folder_is_told_in_one_line(old):
    with pytest.raises(OSError, match=r"exists|directory") as caught:
        write_text(old / "below.csv", "new")
    assert ".tmp" not in str(caught.value)
    _only_old_is_left(old)


def test_a_folder_that_may_not_be_written_is_told_by_the_files_name(old, monkeypatch):
    def refuse(self, *arguments, **named):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(files.Path, "touch", refuse)  # to root every folder is open
    with pytest.raises(PermissionError) as caught:
        write_text(old, "new")
    assert caught.value.filename == str(old)
    _only_old_is_left(old)


def test_a_writer_that_replaces_the_file_by_a_private_one_does_not_hide_it(tmp_path):
    with atomic_path(tmp_path / "out") as temporary:
        temporary.unlink()
        temporary.touch(mode=0o600)
    plain = tmp_path / "plain"
    plain.touch()
    assert (tmp_path / "out").stat().st_mode == plain.stat().st_mode
