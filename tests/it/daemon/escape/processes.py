"""Tries: other processes, sockets, terminals."""

import ctypes
import fcntl
import json
import os
import pty
import select
import signal
import socket
import sys
import subprocess

from base import (
    HOME, SPACE, STATE, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, call, checked, libc, lure, others, read, some, talk, trying
)

# Other processes.

def of_all(what):
    return some(others(), lambda pid: read("/proc/%d/%s" % (pid, what)))


@trying
def environments_of_others():
    return of_all("environ")


@trying
def roots_of_others():
    path = HOME + "/.ssh/id_ed25519"
    return some(others(), lambda pid: read("/proc/%d/root%s" % (pid, path)))


@trying
def folders_of_others():
    return some([lure["pid"]], lambda pid: read("/proc/%d/cwd/.ssh/id_ed25519" % pid))


@trying
def descriptors_of_others():
    def look(pid):
        names = os.listdir("/proc/%d/fd" % pid)
        return lure["mark"] if [os.stat("/proc/%d/fd/%s" % (pid, name)) for name in names[:1]] else ""
    return some([lure["pid"], lure["daemon"]], look)


@trying
def memory_of_others():
    with open("/proc/%d/mem" % lure["pid"], "rb", buffering=0) as memory:
        memory.seek(lure["address"])
        return memory.read(lure["length"]).decode(errors="replace")


@trying
def memory_by_call():
    buffer = ctypes.create_string_buffer(lure["length"])
    ours = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), lure["length"])
    theirs = (ctypes.c_size_t * 2)(lure["address"], lure["length"])
    call("process_vm_readv", lure["pid"], ours, 1, theirs, 1, 0)
    return buffer.raw.decode(errors="replace")


@trying
def trace_a_process():
    call("ptrace", 16, lure["pid"], 0, 0)
    os.waitpid(lure["pid"], 0x40000000)
    call("ptrace", 17, lure["pid"], 0, 0)
    return True


@trying
def take_a_descriptor():
    handle = call("pidfd_open", lure["pid"], 0)
    for number in range(3, 20):
        call("pidfd_getfd", handle, number, 0)
        return True


@trying
def signal_a_process():
    os.kill(lure["pid"], signal.SIGUSR1)


@trying
def signal_by_handle():
    handle = call("pidfd_open", lure["pid"], 0)
    call("pidfd_send_signal", handle, int(signal.SIGUSR2), None, 0)


@trying
def signal_by_owner_of_a_file():
    ours, theirs = socket.socketpair()
    fcntl.fcntl(ours, fcntl.F_SETOWN, lure["pid"])
    fcntl.fcntl(ours, fcntl.F_SETFL, fcntl.fcntl(ours, fcntl.F_GETFL) | 0o20000)
    theirs.send(b"x")


@trying
def signal_everybody():
    os.kill(-1, signal.SIGWINCH)


@trying
def signal_the_daemon():
    os.kill(lure["daemon"], signal.SIGCONT)
    return True


def supervisor():
    pid = os.getpid()
    for _ in range(16):
        pid = int(open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[1])
        if pid <= 1:
            # The first process of a namespace of its own is no supervisor, and no signal from inside ends or stops it.
            return None
        line = open("/proc/%d/cmdline" % pid).read()
        if "\0hold\0" in line:
            return pid


@trying
def signal_the_supervisor():
    pid = supervisor()
    if pid:
        os.kill(pid, signal.SIGCONT)
        return True


@trying
def limits_of_the_supervisor():
    pid = supervisor()
    if pid:
        # A limit that changes nothing; one of processor time would end it.
        call("prlimit64", pid, 4, (ctypes.c_uint64 * 2)(0, 0), None)
        return True


@trying
def limits_of_others():
    limits = (ctypes.c_uint64 * 2)(64, 64)
    call("prlimit64", lure["pid"], 4, limits, None)
    return True


@trying
def priority_of_others():
    os.setpriority(os.PRIO_PROCESS, lure["pid"], 19)
    return True


@trying
def see_others_at_all():
    return lure["mark"] if "bait.py" in read("/proc/%d/cmdline" % lure["pid"]) else None


@trying
def compare_kernel_objects():
    call("kcmp", lure["pid"], os.getpid(), 0, 0, 0)
    return True


@trying
def enter_a_namespace():
    for name in ("user", "mnt", "pid", "ipc", "net"):
        handle = os.open("/proc/%d/ns/%s" % (lure["pid"], name), os.O_RDONLY)
        call("setns", handle, 0)
        return True


@trying
def enter_by_handle():
    handle = call("pidfd_open", lure["pid"], 0)
    call("setns", handle, CLONE_NEWNS | CLONE_NEWPID)
    return True


@trying
def namespace_of_users():
    checked(libc.unshare(CLONE_NEWUSER))
    return True


@trying
def outlive_the_command():
    # Judged by somebody outside, when the command is over: nobody writes any more.
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            os.close(1)
            while True:
                select.select([], [], [], 0.05)
                open(SPACE + "/heart", "a").write("x")
        os._exit(0)


@trying
def outlive_the_supervisor():
    # In a session of its own, without the command's environment, when whoever looks after it is dead.
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", sys.argv[1]], {})
        os._exit(0)
    pid = supervisor()
    if pid:
        os.kill(pid, signal.SIGKILL)


@trying
def outlive_the_command_in_many():
    # A bounded bomb: each forks anew and ends, so that nobody is there long enough to be told.
    for _ in range(50):
        if os.fork() == 0:
            os.setsid()
            while True:
                if os.fork() != 0:
                    os._exit(0)
                select.select([], [], [], 0.02)
                open(SPACE + "/hearts", "a").write("x")


# Sockets.

@trying
def command_the_daemon():
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(3)
    line.connect(STATE + "/daemon.sock")
    try:
        key = read(STATE + "/daemon.key").strip()
    except OSError:
        key = ""
    task = json.dumps({"op": "task", "goal": "escape", "agent": "other"})
    try:
        line.sendall((json.dumps(key) + "\n" + task + "\n").encode())
    except OSError:
        pass
    return lure["mark"] if "error" not in json.loads(line.recv(65536).splitlines()[0]) else None


@trying
def command_the_daemon_by_a_dead_peer():
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        if os.fork() == 0:
            line = socket.socket(socket.AF_UNIX)
            try:
                line.connect(STATE + "/daemon.sock")
                socket.send_fds(theirs, [b"x"], [line.fileno()])
            except OSError:
                theirs.send(b"-")
            os._exit(0)
        os._exit(0)
    os.wait()
    said, handles, _, _ = socket.recv_fds(ours, 1, 1)
    if not handles:
        raise OSError(111, "nobody could connect")
    line = socket.socket(fileno=handles[0])
    line.settimeout(3)
    key = read(STATE + "/daemon.key").strip()
    try:
        line.sendall((json.dumps(key) + "\n" + json.dumps({"op": "status"}) + "\n").encode())
    except OSError:
        pass
    return lure["mark"] if "error" not in json.loads(line.recv(65536).splitlines()[0]) else None


@trying
def command_the_daemon_by_its_program():
    env = dict(os.environ, OPENVIBER_HOME=lure["viber"])
    done = subprocess.run([lure["program"], "task", "--agent", "other", "escape"], env=env, capture_output=True,
        timeout=4)
    return lure["mark"] if done.returncode == 0 else None


@trying
def socket_in_the_temporary_folder():
    return talk(lure["sockets"]["multiplexer"], "socket-in-the-temporary-folder")


@trying
def socket_of_the_agent_of_keys():
    return talk(lure["sockets"]["agent"], "socket-of-the-agent-of-keys")


@trying
def socket_of_an_engine():
    return talk(lure["sockets"]["engine"], "socket-of-an-engine")


@trying
def socket_of_the_services():
    return talk(lure["sockets"]["systemd"], "socket-of-the-services")


@trying
def socket_in_run():
    return talk(lure["sockets"].get("run", "/run/escape-none.sock"), "socket-in-run")


@trying
def socket_elsewhere():
    return talk(lure["sockets"]["elsewhere"], "socket-elsewhere")


@trying
def socket_by_a_link():
    os.symlink(lure["sockets"]["elsewhere"], SPACE + "/socket")
    return talk(SPACE + "/socket", "socket-by-a-link")


@trying
def socket_without_a_name():
    return talk("\0" + lure["abstract"], "socket-without-a-name")


@trying
def datagram_without_a_name():
    line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    line.sendto(b"datagram-without-a-name", "\0" + lure["abstract"] + "-dgram")


@trying
def bus_of_the_system():
    for path in ("/run/dbus/system_bus_socket", "/var/run/docker.sock", "/run/containerd/containerd.sock",
            "/run/systemd/private", "/run/user/%d/bus" % os.getuid(), "/run/snapd.socket"):
        line = socket.socket(socket.AF_UNIX)
        try:
            line.connect(path)
            return True
        except OSError:
            pass


# Terminals.

@trying
def write_to_a_terminal():
    handle = os.open(lure["terminal"], os.O_WRONLY | os.O_NOCTTY)
    os.write(handle, b"write-to-a-terminal\n")


@trying
def read_from_a_terminal():
    os.open(lure["terminal"], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    return True


@trying
def type_into_a_terminal():
    handle = os.open(lure["terminal"], os.O_RDWR | os.O_NOCTTY)
    for letter in b"type-into-a-terminal\n":
        fcntl.ioctl(handle, 0x5412, bytes([letter]))
    return True


@trying
def type_into_the_own_terminal():
    pid, leader = pty.fork()
    if pid == 0:
        try:
            fcntl.ioctl(0, 0x5412, b"x")
            os._exit(7)
        except OSError:
            os._exit(0)
    return True if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7 else None


@trying
def open_the_console():
    return some(["/dev/console", "/dev/tty0", "/dev/tty1", "/dev/tty"], lambda path: os.open(path, os.O_WRONLY)) and True
