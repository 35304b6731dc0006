"""The system calls that a program in the sandbox may make; all others fail with "operation not permitted".

The list has what Python itself needs to compute, to read files, to write files in its own folder, to sleep and to end.
It has nothing that makes a process or a thread, a socket, a mount or a link, that changes an owner, a mode or a limit,
or that reaches into another process. A call that could also do harm is allowed for some arguments only
(``CONDITIONS``).

Numbers are those of the kernel's tables for x86-64 and arm64; None where the architecture lacks the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7), "arm64": (1, 0xC00000B7)}
"""For each name of a machine, the column of ``ALLOWED`` and the kernel's number of the architecture."""

ALLOWED: Mapping[str, tuple[int | None, int | None]] = {
    # the most frequent first: the kernel compares one after the other
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "brk": (12, 214),
    "futex": (202, 98),
    "fstat": (5, 80),
    "newfstatat": (262, 79),
    "lseek": (8, 62),
    "openat": (257, 56),
    # memory and signals of the process itself
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "membarrier": (324, 283),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137),
    "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "setitimer": (38, 103),
    "getitimer": (36, 102),
    "alarm": (37, None),
    "pause": (34, None),
    "kill": (62, 129),
    "tgkill": (234, 131),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "rseq": (334, 293),
    "arch_prctl": (158, None),
    "exit": (60, 93),
    "exit_group": (231, 94),
    # files: which ones is decided by Landlock
    "open": (2, None),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "readv": (19, 65),
    "writev": (20, 66),
    "preadv": (295, 69),
    "pwritev": (296, 70),
    "close_range": (436, 436),
    "stat": (4, None),
    "lstat": (6, None),
    "statx": (332, 291),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getdents": (78, None),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    "chdir": (80, 49),
    "fchdir": (81, 50),
    "ftruncate": (77, 46),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "sendfile": (40, 71),
    "copy_file_range": (326, 285),
    "umask": (95, 166),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "pipe": (22, None),
    "pipe2": (293, 59),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21),
    "epoll_wait": (232, None),
    "epoll_pwait": (281, 22),
    "eventfd2": (290, 19),
    # questions about the process and the machine, time, random numbers
    "getpid": (39, 172),
    "getppid": (110, 173),
    "gettid": (186, 178),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getpgrp": (111, None),
    "getpgid": (121, 155),
    "getsid": (124, 156),
    "getgroups": (115, 158),
    "getresuid": (118, 148),
    "getresgid": (120, 150),
    "uname": (63, 160),
    "sysinfo": (99, 179),
    "times": (100, 153),
    "getrusage": (98, 165),
    "getrlimit": (97, 163),
    "prlimit64": (302, 261),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "getcpu": (309, 168),
    "getpriority": (140, 141),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "getrandom": (318, 278),
}


@dataclass(frozen=True)
class OneOf:
    """The call is allowed if the argument, as 32 bits, is one of these values; ``PID`` stands for the process's own."""

    argument: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class Null:
    """The call is allowed if the argument, a pointer, is null."""

    argument: int


@dataclass(frozen=True)
class NotTruncatedUnread:
    """The call is allowed unless its flags truncate a file that they open for reading.

    Landlock before its third version lets that through.
    """

    argument: int


PID = -1
O_TRUNC, O_ACCMODE = 0o1000, 0o3
F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC = 0, 1, 2, 3, 4, 1030
TCGETS, TIOCGWINSZ, FIONREAD, FIONCLEX, FIOCLEX = 0x5401, 0x5413, 0x541B, 0x5450, 0x5451

CONDITIONS: Mapping[str, OneOf | Null | NotTruncatedUnread] = {
    "kill": OneOf(0, (PID,)),
    "tgkill": OneOf(0, (PID,)),
    "fcntl": OneOf(1, (F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC)),  # F_SETOWN would send signals
    "ioctl": OneOf(1, (TCGETS, TIOCGWINSZ, FIONREAD, FIONCLEX, FIOCLEX)),
    "prlimit64": Null(2),  # limits may be read
    "open": NotTruncatedUnread(1),
    "openat": NotTruncatedUnread(2),
}
