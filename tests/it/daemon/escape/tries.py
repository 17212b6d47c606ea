"""What a command of an agent tries in order to reach what it was not given.

Its argument: a JSON file that says where everything lies. Each try is a function that returns what it got hold of: text
that it read, `True` for something that it could open or do, and nothing when it failed. It runs in a process of its own
for five seconds at most (`seconds`). What a try may have changed is judged by somebody outside; the changes are made to
`outside/{try}`, or told to the bait under the try's name. One JSON line a try is printed.
"""

import json
import os
import select
import signal

import files
import machine
import processes
from base import ESCAPES, lure

assert files and machine and processes


def attempt(name):
    """The try in a process of its own, which is ended with all it has started."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        os.setsid()
        try:
            got = ESCAPES[name]()
            said = {"got": got if isinstance(got, (str, bool)) else None}
        except Exception as error:
            said = {"failed": "%s: %s" % (type(error).__name__, error)}
        os.write(theirs, json.dumps(said).encode()[:60000])
        os._exit(0)
    os.close(theirs)
    said, wait = b"", lure.get("seconds", 5)
    while select.select([ours], [], [], wait)[0]:
        piece = os.read(ours, 65536)
        if not piece:
            break
        said += piece
    os.close(ours)
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass
    os.waitpid(pid, 0)
    if name in ("memory-by-system-v", "memory-by-semaphores"):
        machine.forget()
    try:
        return json.loads(said)
    except ValueError:
        return {"failed": "no answer"}


for name in lure["tries"]:
    print(json.dumps({"try": name, **attempt(name)}), flush=True)
