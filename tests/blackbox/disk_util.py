# SPDX-License-Identifier: Apache-2.0
"""Images as disks."""

import contextlib
import errno
import fcntl
import os
import struct
import subprocess

LOOP_CTL_GET_FREE, LOOP_CONFIGURE, LO_FLAGS_AUTOCLEAR = 0x4C82, 0x4C0A, 4


@contextlib.contextmanager
def loop_device(image):
    """Its path; it goes when nobody uses it any more.

    Not by mount(8) or losetup(8): tests run side by side, and where another one takes the free device first,
    their clean-up may detach it.
    """
    control, file = os.open("/dev/loop-control", os.O_RDWR), os.open(image, os.O_RDWR)
    config = struct.pack("<II 52x I", file, 0, LO_FLAGS_AUTOCLEAR).ljust(304, b"\0")
    try:
        while True:
            path = f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}"
            device = os.open(path, os.O_RDWR)
            try:
                fcntl.ioctl(device, LOOP_CONFIGURE, config)
                yield path
                return
            except OSError as e:
                if e.errno != errno.EBUSY:
                    raise
            finally:
                os.close(device)
    finally:
        os.close(file)
        os.close(control)


def mount_image(image, point, options="loop"):
    with loop_device(image) as device:
        options = ",".join(o for o in options.split(",") if o != "loop")
        subprocess.run(["mount", *(["-o", options] if options else []), device, str(point)], check=True)
