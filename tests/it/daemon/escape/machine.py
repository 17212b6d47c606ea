"""Tries: shared memory and keys, the network, the kernel."""

import ctypes
import glob
import mmap
import os
import resource
import select
import signal
import socket
import struct

from base import SPACE, at, call, checked, libc, lure, read, some, talk, trying

# Memory that is shared, and keys of the kernel.

@trying
def read_shared_memory():
    return read(lure["shared"])


@trying
def write_shared_memory():
    open(lure["shared"] + "-new", "x").close()


@trying
def segment_of_system_v():
    libc.shmat.restype = ctypes.c_void_p
    place = libc.shmat(lure["segment"], None, 0)
    if place in (None, ctypes.c_void_p(-1).value):
        checked(-1)
    return ctypes.string_at(place).decode(errors="replace")


@trying
def semaphore_of_system_v():
    checked(libc.semctl(lure["semaphore"], 0, 16, 7))
    return True


@trying
def queue_of_system_v():
    buffer = ctypes.create_string_buffer(256)
    checked(libc.msgrcv(lure["queue"], buffer, 200, 0, 0o4000))
    return buffer.raw[8:208].split(b"\0")[0].decode(errors="replace")


@trying
def queue_of_posix():
    checked(libc.mq_open(lure["mailbox"].encode(), os.O_RDWR))
    return True


@trying
def read_a_key_of_the_kernel():
    # The user's own keyring, as it was when the bait put its key there.
    key = call("request_key", b"user", ("escape-%d" % lure["pid"]).encode(), None, 0)
    buffer = ctypes.create_string_buffer(256)
    got = call("keyctl", 11, key, buffer, 256, 0)
    return buffer.raw[:got].decode(errors="replace")


@trying
def add_a_key_to_the_kernel():
    call("add_key", b"user", b"escape", b"x", 1, -4)
    return True


@trying
def more_memory_than_allowed():
    size = lure["memory"] + 256 * 2**20
    piece = mmap.mmap(-1, size)
    for place in range(0, size, 4096):
        piece[place] = 1
    # For longer than the supervisor looks away.
    select.select([], [], [], 1.5)
    return True


@trying
def more_memory_in_many():
    # Each within its own bound, all of them beyond it.
    children = []
    for _ in range(6):
        pid = os.fork()
        if pid == 0:
            size = lure["memory"] // 4
            piece = mmap.mmap(-1, size)
            for place in range(0, size, 4096):
                piece[place] = 1
            os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(0)
        children.append(pid)
    stopped = [os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]) for pid in children]
    # For longer than the supervisor looks away.
    select.select([], [], [], 1.5)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    return True if all(stopped) else None


@trying
def memory_by_files():
    # What is in memory as a file counts too.
    size, path = lure["memory"] + 256 * 2**20, "/dev/shm/escape-full"
    try:
        with open(path, "wb") as file:
            for _ in range(size // 2**20):
                file.write(bytes(2**20))
        return True
    finally:
        os.unlink(path)


def held():
    # For longer than the supervisor looks away.
    select.select([], [], [], 1.5)
    return True


@trying
def memory_by_memfd():
    # No process has these pages, and no folder this file.
    file = os.memfd_create("escape")
    for _ in range(lure["memory"] // 2**20 + 256):
        os.write(file, bytes(2**20))
    return held()


# What stays in the kernel when its maker is gone: `forget` finds it by these keys.
KEYS = range(0x65736300, 0x65736400)


@trying
def memory_by_system_v():
    # A segment stays when nobody is attached to it any more.
    size = (lure["memory"] + 256 * 2**20) // 16
    libc.shmat.restype = ctypes.c_void_p
    for key in KEYS[:16]:
        segment = checked(libc.shmget(key, ctypes.c_size_t(size), 0o1600))
        place = libc.shmat(segment, None, 0)
        if place in (None, ctypes.c_void_p(-1).value):
            checked(-1)
        ctypes.memset(place, 1, size)
        libc.shmdt(ctypes.c_void_p(place))
    return held()


@trying
def memory_by_semaphores():
    # The kernel keeps 64 bytes for each.
    for key in KEYS[:(lure["memory"] + 256 * 2**20) // (64 * 32000) + 1]:
        checked(libc.semget(key, 32000, 0o1600))
    return held()


def forget():
    for key in KEYS:
        segment, semaphores = libc.shmget(key, ctypes.c_size_t(0), 0), libc.semget(key, 0, 0)
        if segment >= 0:
            libc.shmctl(segment, 0, None)
        if semaphores >= 0:
            libc.semctl(semaphores, 0, 0)


@trying
def memory_by_sockets():
    # What nobody reads waits in the kernel.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    pairs, sent, piece = [], 0, bytes(2**16)
    while sent < lure["memory"] + 256 * 2**20:
        pair = socket.socketpair()
        pairs.append(pair)
        for line in pair:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**23)
            line.setblocking(False)
            try:
                while True:
                    sent += line.send(piece)
            except BlockingIOError:
                pass
    return held()


# The network.

@trying
def port_of_somebody():
    return talk(("127.0.0.1", lure["port"]), "port-of-somebody", socket.AF_INET)


@trying
def port_of_the_board():
    line = socket.create_connection(("127.0.0.1", lure["board"]), 3)
    line.sendall(b"GET /api/v1/vibers HTTP/1.0\r\nHost: 127.0.0.1:%d\r\n\r\n" % lure["board"])
    answer = line.recv(4096)
    return (lure["mark"] if b" 200 " in answer.split(b"\r\n")[0] + b" " else True)


@trying
def change_a_route():
    line = socket.socket(16, socket.SOCK_RAW, 0)
    line.bind((0, 0))
    # A new route that makes no sense: whoever may not is told so before anybody looks at it.
    line.send(struct.pack("=IHHII", 28, 24, 5, 1, 0) + bytes([99]) + bytes(11))
    error = struct.unpack("=i", line.recv(4096)[16:20])[0]
    return None if error in (-1, -13) else True


@trying
def raw_packets():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    return True


@trying
def packets_of_the_link():
    line = socket.socket(17, socket.SOCK_RAW, socket.htons(3))
    line.bind(("lo", 0))
    return True


@trying
def machine_beside():
    socket.socket(40, socket.SOCK_STREAM)
    return True


# The kernel.

@trying
def rings_of_the_kernel():
    call("io_uring_setup", 4, ctypes.create_string_buffer(256))
    return True


@trying
def programs_in_the_kernel():
    call("bpf", 0, ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 4, 1) + bytes(112)), 128)
    return True


@trying
def events_of_the_kernel():
    attr = struct.pack("IIQ", 1, 128, 0) + bytes(112)
    call("perf_event_open", ctypes.create_string_buffer(attr), 0, -1, -1, 0)
    return True


@trying
def faults_in_user_space():
    call("userfaultfd", 1)
    return True


@trying
def another_kernel():
    call("kexec_load", 0, 0, None, 0)
    return True


@trying
def modules_of_the_kernel():
    try:
        call("init_module", b"", 0, b"")
    except OSError as error:
        # It was looked at: whoever may not is told so before.
        return True if error.errno == 8 else None


@trying
def swap_of_the_machine():
    try:
        call("swapon", (SPACE + "/nothing").encode(), 0)
    except OSError as error:
        # It was looked for: whoever may not is told so before.
        return True if error.errno == 2 else None


@trying
def log_of_the_kernel():
    call("syslog", 10, None, 0)
    return some(["/dev/kmsg", "/proc/kmsg"], lambda path: os.open(path, os.O_RDONLY)) and True


@trying
def accounts_of_processes():
    call("acct", (SPACE + "/account").encode())
    call("acct", None)
    return True


@trying
def settings_of_the_kernel():
    places = ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger",
        "/sys/kernel/uevent_helper", "/sys/power/state"]
    return some(places, lambda path: os.open(path, os.O_WRONLY)) and True


@trying
def groups_of_processes():
    places = glob.glob("/sys/fs/cgroup/cgroup.procs") + glob.glob("/sys/fs/cgroup/*/cgroup.procs")
    return some(places, lambda path: os.open(path, os.O_WRONLY)) and True


@trying
def memory_of_the_machine():
    return some(["/dev/mem", "/dev/kmem", "/proc/kcore", "/dev/port"], lambda path: os.open(path, os.O_RDONLY)) and True


@trying
def disks_of_the_machine():
    found = [path for path in glob.glob("/dev/*") if os.path.exists(path) and (os.stat(path).st_mode & 0o170000) == 0o060000]
    return some(found, lambda path: os.open(path, os.O_RDONLY)) and True


@trying
def name_of_the_machine():
    socket.sethostname(socket.gethostname())
    return True


@trying
def clock_of_the_machine():
    # Its status is set to what it is: whoever may not is told so.
    clock = ctypes.create_string_buffer(256)
    checked(libc.adjtimex(clock))
    ctypes.memmove(clock, struct.pack("I", 0x10), 4)
    checked(libc.adjtimex(clock))
    return True
