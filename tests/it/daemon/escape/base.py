"""What every try uses: where things lie, system calls by their names, and the register of tries."""

import ctypes
import json
import os
import socket
import sys

lure = json.load(open(sys.argv[1]))
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
HOME, OUTSIDE, STATE, SPACE = lure["home"], lure["outside"], lure["state"], lure["space"]
# Numbers that differ between machines; from 424 on they are one.
OLD = {
    "x86_64": dict(ptrace=101, init_module=175, syslog=103, add_key=248, request_key=249, keyctl=250,
        perf_event_open=298, open_by_handle_at=304, name_to_handle_at=303, setns=308, process_vm_readv=310,
        kcmp=312, kexec_load=246, bpf=321, userfaultfd=323, swapon=167, acct=163, prlimit64=302),
    "aarch64": dict(ptrace=117, init_module=105, syslog=116, add_key=217, request_key=218, keyctl=219,
        perf_event_open=241, open_by_handle_at=265, name_to_handle_at=264, setns=268, process_vm_readv=270,
        kcmp=272, kexec_load=104, bpf=280, userfaultfd=282, swapon=224, acct=89, prlimit64=261),
}[os.uname().machine]
NEW = dict(pidfd_send_signal=424, io_uring_setup=425, open_tree=428, pidfd_open=434, pidfd_getfd=438)
CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID = 0x10000000, 0x00020000, 0x20000000
ESCAPES = {}


def trying(function):
    ESCAPES[function.__name__.replace("_", "-")] = function
    return function


def call(name, *args):
    number = NEW.get(name) or OLD[name]
    args = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    got = libc.syscall(ctypes.c_long(number), *args)
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got


def checked(got):
    if got == -1 or got is None:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got


def at(name, *more):
    return os.path.join(OUTSIDE, name, *more)


def read(path, most=65536):
    with open(path, "rb", buffering=0) as file:
        return file.read(most).decode(errors="replace")


def some(paths, how=read):
    """Whatever of several is got; the last failure when nothing is."""
    got, failed = [], None
    for path in paths:
        try:
            got.append(str(how(path)))
        except OSError as error:
            failed = error
    if not got and failed:
        raise failed
    return "\n".join(got)


def talk(address, name, family=socket.AF_UNIX, kind=socket.SOCK_STREAM):
    line = socket.socket(family, kind)
    line.settimeout(3)
    line.connect(address)
    line.sendall((name + "\n").encode())
    return line.recv(200).decode(errors="replace")


def others():
    """Processes that are seen and that this one did not start."""
    mine, pid = set(), os.getpid()
    while pid > 1 and pid != lure["daemon"]:
        mine.add(pid)
        pid = int(open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[1])
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in mine]
