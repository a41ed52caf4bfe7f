"""Writes numbered blocks until the server dies, then says whether what it acknowledged is still there.

torture.py write SOCKET EXPORT STATE SEED   until a request fails, the connection breaks, SECONDS (argument 6) pass or SIGTERM;
                                            says when the first request is answered
torture.py verify SOCKET EXPORT STATE [errors]   every block holds a version that the rules allow, and what is read is flushed;
                                            exit 1 otherwise; with `errors` a read may fail instead, and nothing is
                                            settled by what is read

Rule: a block may hold the version that the last acknowledged flush covered, or any later one that was sent.
"""

import json
import os
import random
import signal
import socket
import struct
import sys
import time

from nbd_client import Client, NbdError, FLUSH, WRITE, FUA

BLOCK = 4096
BLOCKS = 4096
DEPTH = 16


def content(block, version):
    if version == 0:
        return None
    head = struct.pack(">QQ", block, version)
    return head * (BLOCK // len(head))


def version_of(block, data):
    """The version that a block holds; 0 for what was there before; None if torn between sectors."""
    seen = set()
    for start in range(0, BLOCK, 512):
        number, version = struct.unpack(">QQ", data[start:start + 16])
        if data[start:start + 512] != struct.pack(">QQ", number, version) * 32:
            seen.add(("foreign", start))
        else:
            seen.add((number, version) if version else (0, 0))
    return seen


def unsaved(state_path):
    """Stands while a load runs: without what that load sent, a verification would find faults that are none."""
    return state_path + ".unsaved"


def stop_when_told(client):
    """SIGTERM ends the connection. The handler raises nothing: it may run anywhere, also while the state is being saved."""

    def stop(*_):
        try:
            client.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # It has ended already.

    signal.signal(signal.SIGTERM, stop)


def load(path):
    try:
        with open(path, encoding="ascii") as file:
            return {int(block): versions for block, versions in json.load(file).items()}
    except FileNotFoundError:
        return {}


def write(path, export, state_path, seed, seconds):
    """Keeps DEPTH writes in flight; remembers per block [durable, sent, sent, …]."""
    rng = random.Random(seed)
    state = load(state_path)
    client = Client(path, export)
    counter = int(time.time() * 1000) << 12
    flying, flushing = {}, None
    acknowledged, is_answered = {}, False
    end = time.time() + seconds
    stop_when_told(client)
    with open(unsaved(state_path), "w", encoding="ascii"):
        pass
    try:
        while time.time() < end or flying:
            while len(flying) < DEPTH and time.time() < end:
                if rng.random() < 0.03 and flushing is None:
                    covered = dict(acknowledged)
                    flushing = client.send(FLUSH, 0, 0)
                    flying[flushing] = ("flush", covered)
                    continue
                block = rng.randrange(BLOCKS)
                if any(item[0] == "write" and item[1] == block for item in flying.values()):
                    continue
                counter += 1
                versions = state.setdefault(block, [0])
                versions.append(counter)
                fua = rng.random() < 0.05
                cookie = client.send(WRITE, block * BLOCK, BLOCK, content(block, counter), FUA if fua else 0)
                flying[cookie] = ("write", block, counter, fua)
            cookie, error = client.reply()
            if error:
                raise NbdError(error)
            if not is_answered:
                is_answered = True
                print("torture: answered", flush=True)
            done = flying.pop(cookie)
            if done[0] == "flush":
                flushing = None
                for block, version in done[1].items():
                    durable(state, block, version)
            else:
                acknowledged[done[1]] = done[2]
                if done[3]:
                    durable(state, done[1], done[2])
        outcome = "time"
    except NbdError as refused:
        # What failed may be there or not, as what was never answered.
        outcome = f"refused with {refused}"
    except (ConnectionError, OSError) as broken:
        outcome = f"server gone ({broken})"
    with open(state_path, "w", encoding="ascii") as file:
        json.dump(state, file)
    os.remove(unsaved(state_path))
    print(f"torture: {outcome}; {sum(len(v) - 1 for v in state.values())} versions open on {len(state)} blocks")


def durable(state, block, version):
    """Everything older than `version` may no longer be seen."""
    versions = state[block]
    if version in versions:
        state[block] = versions[versions.index(version):]


def verify(path, export, state_path, errors=""):
    if os.path.exists(unsaved(state_path)):
        print(f"verify: the load before this has not saved {state_path}")
        return 2
    state = load(state_path)
    client = Client(path, export)
    wrong = failed = 0
    for block, versions in sorted(state.items()):
        try:
            seen = version_of(block, client.read(block * BLOCK, BLOCK))
        except NbdError:
            failed += 1
            continue
        allowed = {(block, version) if version else (0, 0) for version in versions}
        if not seen <= allowed:
            wrong += 1
            print(f"block {block}: holds {sorted(map(str, seen))[:4]}, allowed {sorted(map(str, allowed))[:6]}")
        elif not errors:
            newest = max(version for _, version in seen)
            state[block] = [newest] if len(seen) == 1 else sorted(version for _, version in seen)
    if not errors:
        # Without a crash before this, what was read may not have been flushed: from now on it must be there.
        client.flush()
    client.close()
    with open(state_path, "w", encoding="ascii") as file:
        json.dump(state, file)
    print(f"verify: {len(state)} blocks, {wrong} wrong, {failed} not read")
    return 1 if wrong or failed and not errors else 0


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), float(sys.argv[6]) if len(sys.argv) > 6 else 1e9)
    else:
        sys.exit(verify(*sys.argv[2:6]))
