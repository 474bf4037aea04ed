"""What is kept on disk: nobody else can have written it, and it is what was written."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from eventtensor.config import environment
from eventtensor.errors import CacheUnusable, CannotWrite, DiskFull, LibraryRefused
from eventtensor.runtime import cpp_build, store
from eventtensor.runtime.thread_kernel import _load

SOURCE = "extern \"C\" int answer() { return 42; }\n"
STRANGER = 4321


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Files in this set belong to another user, as far as the system says."""
    found: set[Path] = set()
    true = os.lstat

    def lstat(path: Path) -> object:
        seen = true(path)
        if Path(path) not in found:
            return seen
        return SimpleNamespace(st_mode=seen.st_mode, st_uid=STRANGER, st_size=seen.st_size)

    monkeypatch.setattr(store.os, "lstat", lstat)
    return found


def built(root: Path) -> cpp_build.BuildResult:
    return cpp_build.build_library(SOURCE, "answer", replace(environment(), cache_dir=root))


# ---- folders -------------------------------------------------------------------------------


def test_folders_are_made_for_one_user(tmp_path: Path) -> None:
    made = store.open_folder(tmp_path / "a" / "b", "c", "d")
    assert made == tmp_path / "a" / "b" / "c" / "d"
    for place in (made, made.parent, made.parent.parent):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_a_folder_of_another_user_is_refused(tmp_path: Path, strangers: set[Path]) -> None:
    strangers.add(tmp_path / "c")
    with pytest.raises(CacheUnusable, match=f"{tmp_path / 'c'} belongs to another user"):
        store.open_folder(tmp_path, "c", "d")
    with pytest.raises(CacheUnusable, match="another user"):
        store.open_folder(tmp_path / "c")


def test_a_folder_that_others_can_write_to_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c").chmod(0o777)
    store.open_folder(tmp_path, "c")
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o755


def test_a_link_is_followed_at_the_root_and_if_it_is_our_own(
    tmp_path: Path, strangers: set[Path]
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store.open_folder(tmp_path / "link", "c")
    with pytest.raises(CacheUnusable, match="not a folder"):
        store.open_folder(tmp_path, "link")
    strangers.add(tmp_path / "link")
    with pytest.raises(CacheUnusable, match="not a folder"):
        store.open_folder(tmp_path / "link", "c")


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="cannot be written"):
        store.open_folder(tmp_path / "file" / "inside")


def test_without_a_home_the_cache_is_a_folder_of_ones_own(monkeypatch) -> None:
    own = f"eventtensor-{os.getuid()}"
    monkeypatch.setattr("eventtensor.config._home_of_user", lambda: "")
    for e in ({}, {"HOME": ""}, {"HOME": "relative"}):
        found = environment(e).cache_dir
        assert found.name == own and found.is_absolute()
    monkeypatch.setattr("eventtensor.config._home_of_user", lambda: "/home/of/user")
    assert environment({}).cache_dir == Path("/home/of/user/.cache/eventtensor")
    assert environment({"HOME": "/h"}).cache_dir == Path("/h/.cache/eventtensor")
    assert environment({"ET_CACHE_DIR": "in/here"}).cache_dir == Path.cwd() / "in/here"
    assert environment({"HOME": "/h", "ET_CACHE_DIR": "/c"}).cache_dir == Path("/c")


# ---- files ---------------------------------------------------------------------------------


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store.os, "replace", full)
    with pytest.raises(DiskFull, match="No space left") as caught:
        store.write_atomically(tmp_path / "x", b"data")
    assert "ET_CACHE_DIR" in str(caught.value) and "at test_store.py:" in str(caught.value)
    assert not list(tmp_path.iterdir())


def broken_library(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def empty_library(path: Path) -> None:
    path.write_bytes(b"")


def flipped_library(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def no_note(path: Path) -> None:
    path.with_name("answer.so.json").unlink()


def broken_note(path: Path) -> None:
    path.with_name("answer.so.json").write_text("[" * 100000)


def writable(path: Path) -> None:
    path.chmod(0o666)


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere.so"))
    path.symlink_to(path.with_name("elsewhere.so"))


@pytest.mark.parametrize("harm", [
    broken_library, empty_library, flipped_library, no_note, broken_note, writable, a_link,
])
def test_an_entry_that_is_not_what_was_built_is_built_again(tmp_path: Path, harm) -> None:
    first = built(tmp_path)
    whole = first.path.read_bytes()
    assert not built(tmp_path).fresh
    harm(first.path)
    again = built(tmp_path)
    assert again.fresh and again.path == first.path and again.path.read_bytes() == whole
    assert not again.path.is_symlink() and not built(tmp_path).fresh


def test_an_entry_of_another_user_is_built_again(tmp_path: Path, strangers: set[Path]) -> None:
    strangers.add(built(tmp_path).path)
    assert built(tmp_path).fresh


def test_a_library_that_the_system_does_not_load_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "no.so").write_bytes(b"no library")
    with pytest.raises(LibraryRefused, match=r"no\.so cannot be loaded"):
        _load(str(tmp_path / "no.so"))
    with pytest.raises(LibraryRefused, match="et_create"):
        _load(str(built(tmp_path).path))
