"""What `-o` names: a link stays and its target is written, a device stays a device, and a full disk leaves what was."""

import resource
import signal
import stat
from pathlib import Path

import pytest

from stripewise import outputs
from stripewise._native import StripewiseError


@pytest.fixture
def null(tmp_path: Path) -> Path:
    """A link to a device: what takes the device away without care takes the link away."""
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    return link


def test_a_link_stays_and_its_target_is_whole(tmp_path):
    target, link = tmp_path / "there", tmp_path / "link"
    target.write_bytes(b"before")
    link.symlink_to("there")
    outputs.write(b"after", link, 0o777)
    assert link.is_symlink()
    assert target.read_bytes() == b"after"
    assert target.stat().st_mode & 0o100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "there"]


def test_a_device_is_written_and_stays(null):
    outputs.write(b"gone", null)
    assert null.is_symlink()
    assert stat.S_ISCHR(null.stat().st_mode)
    with pytest.raises(StripewiseError, match="no regular file; name another"):
        outputs.check_regular(null)


def test_what_cannot_be_written_leaves_what_was(tmp_path):
    output = tmp_path / "layout"
    output.write_bytes(b"before")
    limit, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(OSError, match="large"):
            outputs.write(b"x" * 5000, output)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert output.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["layout"]


def test_commands_leave_devices(stripewise, null, tmp_path):
    refused = stripewise("trace", "-o", null, "--", "touch", tmp_path / "ran", check=False)
    assert refused.returncode == 1
    assert "no regular file; name another file" in refused.stderr
    assert not (tmp_path / "ran").exists()
    stripewise("trace", "-o", tmp_path / "t", "--", "cp", "/etc/passwd", tmp_path / "copy")
    page = tmp_path / "page.html"
    page.symlink_to("/dev/null")
    stripewise("report", tmp_path / "t", "-o", page)
    for link in (null, page):
        assert link.readlink() == Path("/dev/null")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
