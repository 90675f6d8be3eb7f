"""What the kernel or a program holds and the branches do not show."""

import errno
import mmap
import os

import pytest

from unionfs_util import *  # noqa: F403  (fixtures)
from unionfs_util import MIB, errno_of, read, run


@pytest.mark.parametrize("how", ["on", "off"])
def test_what_is_written_through_a_mapping_is_no_hole(make_server, area, how):
    top = make_server(args=[f"--passthrough={'auto' if how == 'on' else how}"]).path
    fd = os.open(top / "f", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 4 * MIB)
    with mmap.mmap(fd, 4 * MIB) as m:
        m[2 * MIB:3 * MIB] = b"x" * MIB
        run("cp", top / "f", area.path / "outside")
        run("cp", top / "f", top / "inside")
        assert os.lseek(fd, 0, os.SEEK_DATA) <= 2 * MIB
        assert os.lseek(fd, 2 * MIB, os.SEEK_HOLE) >= 3 * MIB
        assert [errno_of(os.lseek, fd, 4 * MIB, w) for w in (os.SEEK_DATA, os.SEEK_HOLE)] == 2 * [errno.ENXIO]
    os.close(fd)
    assert read(area.path / "outside") == read(top / "inside") == read(top / "f")
    assert read(top / "f").count(b"x") == MIB
