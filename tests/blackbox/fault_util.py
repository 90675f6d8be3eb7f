"""The control file of tests/lib/faultinject.c: make the n-th step of a program fail, or kill it."""

import mmap
import os
import pathlib
import struct

TOP = pathlib.Path(__file__).resolve().parents[2]
SIZE = 128 + 512 * 16
MAGIC = 0x46415531
OFF, COUNT, FAIL, KILL, STOP = range(5)


def library():
    binary = pathlib.Path(os.environ.get("BIN", TOP / "build" / "bin")).resolve()
    return binary.parent / "lib" / "faultinject.so" if (binary.parent / "lib" / "faultinject.so").exists() \
        else TOP / "build" / "plain" / "tests" / "lib" / "faultinject.so"


class Faults:
    def __init__(self, path):
        self.path = path
        with open(path, "wb") as f:
            f.write(struct.pack("<I", MAGIC).ljust(SIZE, b"\0"))
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), SIZE)

    def env(self):
        preload = [str(library())]
        if os.environ.get("SAN_PRELOAD"):  # a sanitizer's runtime must come first
            preload.insert(0, os.environ["SAN_PRELOAD"])
        return {"LD_PRELOAD": ":".join(preload), "FAULTINJECT": str(self.path)}

    def _set(self, offset, value):
        struct.pack_into("<I", self.map, offset, value)

    def _get(self, offset):
        return struct.unpack_from("<I", self.map, offset)[0]

    def arm(self, mode, nth=0, error=5, program="union-csi", only=""):
        self._set(4, OFF)
        self._set(8, nth)
        self._set(12, error)
        self._set(16, 0)
        self._set(20, 0)
        self._set(120, 0)
        self.map[24:56] = program.encode().ljust(32, b"\0")
        self.map[56:88] = only.encode().ljust(32, b"\0")
        self._set(4, mode)

    def disarm(self):
        self._set(4, OFF)

    @property
    def fired(self):
        return self._get(20) > 0

    @property
    def count(self):
        return self._get(16)

    @property
    def call(self):
        return bytes(self.map[88:120]).split(b"\0")[0].decode()

    @property
    def log(self):
        n = min(self._get(120), 512)
        return [bytes(self.map[128 + 16 * i:144 + 16 * i]).split(b"\0")[0].decode() for i in range(n)]
