#!/usr/bin/env python3
"""Has a running process make a system call of our choice, as an intruder in it would.

    inject.py PID NUMBER[:ARGUMENT...]...

An argument is a number, or `s` and a text, or `x` and bytes in hexadecimal, which are put into the
process's memory. For each call one line: `returned N`, or `trapped` when the call raised SIGSYS; the
process then goes on into that signal and nothing after it is tried. Linux on x86-64, as root.
"""

import ctypes
import os
import signal
import sys

GETREGS, SETREGS, ATTACH, DETACH, SYSCALL = 12, 13, 16, 17, 24
WALL = 0x40000000
SYSCALL_CODE = b"\x0f\x05"
RESTARTS = {-512, -513, -514, -516}
NAMES = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base "
    "ds es fs gs"
).split()


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in NAMES]


libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request, pid, address=None, data=None):
    if libc.ptrace(request, pid, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace {request} of {pid}: {os.strerror(number)}")


def registers(pid):
    values = Registers()
    ptrace(GETREGS, pid, None, ctypes.addressof(values))
    return values


def instruction(pid, memory):
    """The address of a syscall instruction."""
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            span, rights = line.split()[:2]
            start, end = (int(part, 16) for part in span.split("-"))
            if "x" in rights and "vsyscall" not in line:
                at = os.pread(memory, end - start, start).find(SYSCALL_CODE)
                if at >= 0:
                    return start + at
    raise SystemExit("no syscall instruction found")


def put(memory, words, stack):
    """The arguments as numbers, with what they point to below the stack."""
    numbers = []
    for word in words:
        if word[:1] in ("s", "x"):
            content = word[1:].encode() + b"\0" if word[0] == "s" else bytes.fromhex(word[1:])
            stack = (stack - len(content)) & ~15
            os.pwrite(memory, content, stack)
            numbers.append(stack)
        else:
            numbers.append(int(word, 0) & (1 << 64) - 1)
    return numbers


def is_pending(pid, number):
    with open(f"/proc/{pid}/status") as status:
        masks = (int(line.split()[1], 16) for line in status if line.startswith("SigPnd:"))
        return bool(next(masks) >> number - 1 & 1)


def call(pid, memory, code, kept, words):
    """Makes one call. Gives what it returned, or None when it raised SIGSYS."""
    number, *arguments = put(memory, words, kept.rsp - 4096)
    values = Registers.from_buffer_copy(kept)
    values.rip, values.rax, values.orig_rax = code, number, (1 << 64) - 1
    for name, argument in zip("rdi rsi rdx r10 r8 r9".split(), arguments + [0] * 6):
        setattr(values, name, argument)
    ptrace(SETREGS, pid, None, ctypes.addressof(values))
    for _ in range(2):  # into the call, and out of it
        ptrace(SYSCALL, pid)
        _, status = os.waitpid(pid, WALL)
        if not os.WIFSTOPPED(status):
            raise SystemExit(f"ended: {status}")
    if is_pending(pid, signal.SIGSYS):
        return None
    return ctypes.c_int64(registers(pid).rax).value


def main():
    pid = int(sys.argv[1])
    ptrace(ATTACH, pid)
    os.waitpid(pid, WALL)
    memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
    kept, code = registers(pid), instruction(pid, memory)
    for words in sys.argv[2:]:
        result = call(pid, memory, code, kept, words.split(":"))
        if result is None:
            print("trapped")
            break
        print("returned", result)
    else:
        if ctypes.c_int64(kept.orig_rax).value >= 0 and ctypes.c_int64(kept.rax).value in RESTARTS:
            # It was interrupted in a call that goes on afterwards: have it made again.
            kept.rax, kept.rip = kept.orig_rax, kept.rip - len(SYSCALL_CODE)
        kept.orig_rax = (1 << 64) - 1
        ptrace(SETREGS, pid, None, ctypes.addressof(kept))
    ptrace(DETACH, pid)


main()
