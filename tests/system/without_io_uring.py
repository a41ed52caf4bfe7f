"""Runs a program that the kernel refuses io_uring, as containers do: `without_io_uring.py PROGRAM WORD…`."""

import ctypes
import errno
import os
import platform
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
# io_uring_setup has this number on every architecture that is younger than it, and on x86-64.
SETUP = 425
# Instructions of BPF: load the number of the call, compare it, return.
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM

assert platform.machine() in ("x86_64", "aarch64"), platform.machine()
steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, SETUP), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


libc = ctypes.CDLL(None, use_errno=True)
program = Program(len(steps), ctypes.addressof(code))
for order in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)):
    if libc.prctl(*order) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[1], sys.argv[1:])
