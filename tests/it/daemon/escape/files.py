"""Tries: files outside, secrets of the user and of the daemon, and what stays when a command is over."""

import ctypes
import os
import struct

from base import (
    HOME, OUTSIDE, SPACE, STATE, CLONE_NEWNS, CLONE_NEWUSER, at, call, checked, libc, lure, read, some, trying
)

# Files outside of what was given.

@trying
def write_a_file():
    with open(at("write-a-file", "bait"), "a") as file:
        file.write("x")


@trying
def truncate_a_file():
    os.truncate(at("truncate-a-file", "bait"), 0)


@trying
def create_a_file():
    open(at("create-a-file", "new"), "x").close()


@trying
def make_a_folder():
    os.mkdir(at("make-a-folder", "new"))


@trying
def remove_a_file():
    os.unlink(at("remove-a-file", "bait"))


@trying
def rename_outside():
    os.rename(at("rename-outside", "bait"), at("rename-outside", "other"))


@trying
def rename_in():
    os.rename(at("rename-in", "bait"), SPACE + "/renamed-in")


@trying
def rename_out():
    open(SPACE + "/going", "w").close()
    os.rename(SPACE + "/going", at("rename-out", "new"))


@trying
def exchange_names():
    open(SPACE + "/exchanged", "w").write("x")
    checked(libc.renameat2(-100, (SPACE + "/exchanged").encode(), -100, at("exchange-names", "bait").encode(), 2))


@trying
def link_in_and_write():
    os.link(at("link-in-and-write", "bait"), SPACE + "/linked")
    open(SPACE + "/linked", "a").write("x")


@trying
def link_out():
    open(SPACE + "/linked-out", "w").close()
    os.link(SPACE + "/linked-out", at("link-out", "new"))


@trying
def symlink_and_write():
    os.symlink(at("symlink-and-write", "bait"), SPACE + "/symlink")
    open(SPACE + "/symlink", "a").write("x")


@trying
def symlink_swapped_in_the_race():
    path = SPACE + "/swapped"
    for _ in range(300):
        try:
            os.mkdir(path)
            folder = os.open(path, os.O_RDONLY)
            os.rmdir(path)
            os.symlink(at("symlink-swapped-in-the-race"), path)
            open(path + "/bait", "a").write("x")
            os.close(folder)
        except FileExistsError:
            pass
        finally:
            if os.path.islink(path):
                os.unlink(path)


@trying
def change_the_mode():
    os.chmod(at("change-the-mode", "bait"), 0o777)


@trying
def change_the_mode_by_descriptor():
    file = os.open(at("change-the-mode-by-descriptor", "bait"), os.O_RDONLY)
    os.fchmod(file, 0o777)


@trying
def change_the_owner():
    os.chown(at("change-the-owner", "bait"), os.getuid(), 65533 if os.getuid() == 0 else os.getgid())


@trying
def change_the_times():
    os.utime(at("change-the-times", "bait"), (1, 1))


@trying
def set_an_attribute():
    os.setxattr(at("set-an-attribute", "bait"), "user.escape", b"x")


@trying
def change_the_credentials_mode():
    os.chmod(STATE + "/credential", 0o666)
    return True


@trying
def change_the_states_mode():
    os.chmod(STATE, 0o777)
    return True


@trying
def reopen_a_path_descriptor():
    handle = os.open(at("reopen-a-path-descriptor", "bait"), os.O_PATH)
    open("/proc/self/fd/%d" % handle, "a").write("x")


@trying
def open_by_handle():
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128), 136)
    mount = ctypes.c_int()
    call("name_to_handle_at", -100, at("open-by-handle", "bait").encode(), handle, ctypes.byref(mount), 0)
    folder = os.open(SPACE, os.O_RDONLY)
    file = call("open_by_handle_at", folder, handle, os.O_RDWR)
    os.write(file, b"x")


@trying
def chroot_and_out():
    # From a folder that lies outside of the new root.
    os.makedirs(SPACE + "/inner", exist_ok=True)
    os.chroot(SPACE + "/inner")
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    open(at("chroot-and-out", "bait"), "a").write("x")


@trying
def bind_over_a_place():
    os.makedirs(SPACE + "/bound", exist_ok=True)
    checked(libc.mount(at("bind-over-a-place").encode(), (SPACE + "/bound").encode(), None, 4096, None))
    open(SPACE + "/bound/bait", "a").write("x")


@trying
def bind_in_a_namespace():
    user, group = os.getuid(), os.getgid()
    checked(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS))
    open("/proc/self/setgroups", "w").write("deny")
    open("/proc/self/uid_map", "w").write("0 %d 1" % user)
    open("/proc/self/gid_map", "w").write("0 %d 1" % group)
    os.makedirs(SPACE + "/bound", exist_ok=True)
    checked(libc.mount(at("bind-in-a-namespace").encode(), (SPACE + "/bound").encode(), None, 4096, None))
    open(SPACE + "/bound/bait", "a").write("x")


@trying
def overlay_a_place():
    for name in ("upper", "work", "merged"):
        os.makedirs(SPACE + "/" + name, exist_ok=True)
    options = "lowerdir=%s,upperdir=%s/upper,workdir=%s/work" % (STATE, SPACE, SPACE)
    checked(libc.mount(b"overlay", (SPACE + "/merged").encode(), b"overlay", 0, options.encode()))
    return read(SPACE + "/merged/credential")


@trying
def remount_writable():
    for place in ("/", "/usr", "/etc", HOME, OUTSIDE):
        libc.mount(None, place.encode(), None, 32 | 4096, None)
    open(at("remount-writable", "bait"), "a").write("x")


@trying
def unmount_what_hides():
    for place in (HOME + "/.ssh", STATE, HOME + "/.aws", "/tmp", "/run", "/dev/shm"):
        libc.umount2(place.encode(), 2)
    return read(HOME + "/.ssh/id_ed25519") + read(STATE + "/credential")


@trying
def a_tree_of_mounts():
    tree = call("open_tree", -100, at("a-tree-of-mounts").encode(), 1)
    file = os.open("bait", os.O_WRONLY | os.O_APPEND, dir_fd=tree)
    os.write(file, b"x")


@trying
def make_a_device():
    path = SPACE + "/device"
    os.mknod(path, 0o600 | 0o060000, os.stat("/").st_dev)
    os.open(path, os.O_RDONLY)
    return True


# What nobody gave it to read.

@trying
def read_the_credential():
    return read(STATE + "/credential")


@trying
def read_the_sockets_key():
    return lure["mark"] if read(STATE + "/daemon.key").strip() else None


@trying
def read_the_configuration():
    return some([lure["viber"] + "/config.yaml", lure["viber"] + "/secrets/other", lure["viber"] + "/.env"])


@trying
def read_keys_of_the_user():
    return some([HOME + "/.ssh/id_ed25519", HOME + "/.gnupg/private", HOME + "/.netrc"])


@trying
def read_keys_of_clouds():
    return some([HOME + "/.aws/credentials", HOME + "/.docker/config.json", HOME + "/.kube/config",
        HOME + "/.config/gh/hosts.yml"])


@trying
def read_the_browser():
    return some([HOME + "/.mozilla/firefox/x/logins.json", HOME + "/.config/chromium/Default/Cookies"])


@trying
def read_the_history():
    return some([HOME + "/.bash_history", HOME + "/.zsh_history", HOME + "/.python_history"])


@trying
def read_by_a_link():
    os.symlink(HOME + "/.ssh", SPACE + "/keys")
    return read(SPACE + "/keys/id_ed25519")


@trying
def link_a_key_in():
    os.link(HOME + "/.ssh/id_ed25519", SPACE + "/key")
    return read(SPACE + "/key")


@trying
def read_by_dot_dot():
    return read(SPACE + "/../.ssh/id_ed25519")


@trying
def what_was_inherited():
    got = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink("/proc/self/fd/" + name)
            if any(word in target for word in ("credential", "journal", "outbox", "state", "secrets", "anon_inode")):
                got.append(target)
        except OSError:
            pass
    return (lure["mark"] + "".join(got)) if got else None


@trying
def the_environment():
    return "\n".join("%s=%s" % pair for pair in os.environ.items())


# What stays when the command is over.

def kept(name, path):
    """Plants a line in a file of the user."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a") as file:
        file.write("# %s\n" % name)


@trying
def profile_of_the_shell():
    return some([HOME + "/.bashrc", HOME + "/.profile", HOME + "/.zshenv"],
        lambda path: kept("profile-of-the-shell", path))


@trying
def programs_at_login():
    return some([HOME + "/.config/autostart/x.desktop", HOME + "/.config/systemd/user/x.service"],
        lambda path: kept("programs-at-login", path))


@trying
def configuration_of_git():
    return some([HOME + "/.gitconfig", HOME + "/.config/git/config"], lambda path: kept("configuration-of-git", path))


@trying
def configuration_of_cargo():
    return some([HOME + "/.cargo/config.toml", HOME + "/.cargo/bin/cargo"],
        lambda path: kept("configuration-of-cargo", path))


@trying
def configuration_of_the_daemon():
    return some([lure["viber"] + "/config.yaml", lure["viber"] + "/agents/default.yaml"],
        lambda path: kept("configuration-of-the-daemon", path))


@trying
def jobs_of_the_clock():
    for place in ("/var/spool/cron/crontabs", "/var/spool/cron", "/etc/cron.d", "/var/spool/at"):
        try:
            path = place + "/escape-%d" % lure["pid"]
            open(path, "x").close()
            os.unlink(path)
            return True
        except OSError:
            pass


@trying
def programs_of_everybody():
    for place in os.environ.get("PATH", "").split(":"):
        if not place.startswith(SPACE) and os.path.isdir(place):
            try:
                path = place + "/escape-%d" % lure["pid"]
                open(path, "x").close()
                os.unlink(path)
                return True
            except OSError:
                pass
