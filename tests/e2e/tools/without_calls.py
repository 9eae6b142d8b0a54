#!/usr/bin/env python3
"""Runs a program as on a kernel that lacks some system calls: they fail with ENOSYS.

    without_calls.py NUMBER,... PROGRAM [ARGUMENT...]

Linux on x86-64, as root or with no_new_privs.
"""

import ctypes
import errno
import os
import struct
import sys

LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
NO_NEW_PRIVS, SECCOMP, FILTER = 38, 22, 2

numbers = [int(number) for number in sys.argv[1].split(",")]
steps = [(LOAD, 0, 0, 0)]
steps += [(JUMP_IF_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
steps += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, FAIL | errno.ENOSYS)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
for arguments in ((NO_NEW_PRIVS, 1, 0, 0, 0), (SECCOMP, FILTER, ctypes.addressof(program), 0, 0)):
    if libc.prctl(*(ctypes.c_ulong(argument) for argument in arguments)) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
os.execv(sys.argv[2], sys.argv[2:])
