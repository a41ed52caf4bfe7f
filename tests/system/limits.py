"""What clients cannot make the daemon do: keep more memory than it was given, wait, leave a neighbour unserved.

Usage: limits.py TEST SOCKET PID ARGUMENTS…   Exit 1 if the daemon lets itself be used.
"""

import http.client
import json
import multiprocessing
import os
import socket
import struct
import sys
import threading
import time

from nbd_client import CACHE, Client, NbdError, OPT_MAGIC, READ, REQUEST_MAGIC, WRITE, connect

MIB = 1 << 20


def resident(pid):
    """Bytes of the process's own memory."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) << 10


def head(command, length, cookie=1):
    return struct.pack(">IHHQQI", REQUEST_MAGIC, 0, command, cookie, 0, length)


def announced(path, pid, export, other):
    """Large writes are announced on many connections, and not sent: the memory stays within bounds, others are served."""
    before = resident(pid)
    held = []
    for _ in range(40):
        client = Client(path, export)
        client.sock.sendall(head(WRITE, 32 * MIB) + b"x" * 100_000)
        held.append(client)
    honest = Client(path, other)
    for index in range(50):
        honest.read(index * 4096, 128 << 10)
    grown = resident(pid) - before
    assert grown < 80 * MIB, f"{grown} bytes for writes that never came"
    # Begun and not gone on with: left within the daemon's --client-timeout, so a large request has its turn.
    honest.read(0, 32 * MIB)
    for client in held:
        client.sock.settimeout(300)
        assert not client.sock.recv(1), "it is left"


def option(path, _pid):
    """An option of absurd length is refused when its header has come."""
    sock = connect(path)
    sock.settimeout(8)
    sock.sendall(struct.pack(">IQII", 3, OPT_MAGIC, 7, 0xFFFFFFFF))
    said = b""
    while part := sock.recv(4096):
        said += part
    assert struct.pack(">I", 0x80000009) in said[18:], said


def capped(path, _pid, export, count):
    """There are so many connections and no more, the refusal says so, and one that ends makes room."""
    held = [Client(path, export) for _ in range(int(count))]
    try:
        Client(path, export)
        raise AssertionError("one too many is served")
    except NbdError as refused:
        assert "--connections" in str(refused), refused
    held.pop().close()
    until = time.monotonic() + 60
    while True:
        try:
            Client(path, export).close()
            return
        except NbdError:
            assert time.monotonic() < until, "a connection that ended makes no room"
            time.sleep(0.05)


def flooding(path, export, command, length):
    """Sends requests as fast as they are taken, and fetches the replies."""
    client = Client(path, export)
    client.sock.settimeout(None)

    def fetch():
        while client.sock.recv(MIB):
            pass

    threading.Thread(target=fetch, daemon=True).start()
    many = b"".join(head(command, length, cookie) for cookie in range(256))
    while True:
        client.sock.sendall(many)


def median(client, count=60):
    """Seconds of a small read."""
    times = []
    for index in range(count):
        start = time.perf_counter()
        client.read(index * 4096, 4096)
        times.append(time.perf_counter() - start)
    return sorted(times)[count // 2]


def neighbour(path, _pid, flooded, quiet):
    """A flood on one export leaves another its turns: what is measured beside it is compared with a quiet time."""
    client = Client(path, quiet)
    for name, command, length in [("1-byte reads", READ, 1), ("hints to cache", CACHE, 32 * MIB), ("reads", READ, MIB)]:
        alone = median(client)
        process = multiprocessing.Process(target=flooding, args=(path, flooded, command, length), daemon=True)
        process.start()
        time.sleep(0.5)
        beside = min(median(client) for _ in range(3))
        assert process.is_alive(), "the flood goes on"
        process.kill()
        process.join()
        print(f"{name}: {alone * 1e3:.3f} ms alone, {beside * 1e3:.3f} ms beside a flood")
        # Ten times is aimed at, and reached on a quiet machine. A flood once took 500 ms of every turn.
        assert beside < max(50 * alone, 0.02), f"{name}: {alone * 1e3:.3f} ms became {beside * 1e3:.3f} ms"


class Http(http.client.HTTPConnection):
    """HTTP over the daemon's socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=120)
        self.path = path

    def connect(self):
        self.sock = connect(self.path, 120)


def call(path, method, where, body=None):
    http_client = Http(path)
    http_client.request(method, where, json.dumps(body) if body else None)
    answer = json.loads(http_client.getresponse().read())
    http_client.close()
    assert "error" not in answer, answer
    return answer["data"]


def half_sent(path, _pid):
    """Requests whose head never ends keep nobody from the management."""
    held = []
    for _ in range(200):
        sock = connect(path)
        sock.sendall(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n")
        held.append(sock)
        if len(held) % 20 == 0:
            call(path, "GET", "/v1/status")
    # Those that made room have ended already; the others end by themselves.
    held[0].settimeout(60)
    assert not held[0].recv(1), "the oldest made room"
    held[-1].settimeout(60)
    while held[-1].recv(4096):
        pass


def cycles(path, pid, volume, folder, count):
    """Exports come and go and leave no memory behind."""

    def cycle(door, address):
        made = call(path, "POST", "/v1/exports", {"volume": volume, "door": door, "address": address})
        if door == "nbd":
            client = Client(f"{folder}/cycle.sock", volume)
            client.write(0, b"x" * 65536)
            client.close()
        else:
            with open(address, "r+b", buffering=0) as file:
                file.write(b"y" * MIB)
                file.seek(0)
                file.read(MIB)
        call(path, "DELETE", "/v1/exports/" + made["id"])

    doors = {"nbd": f"unix:{folder}/cycle.sock"}
    if os.path.exists("/dev/fuse") and os.geteuid() == 0:
        doors["fuse"] = f"{folder}/cycle.img"
    for door, address in doors.items():
        for _ in range(10):
            cycle(door, address)
        before = resident(pid)
        for _ in range(int(count)):
            cycle(door, address)
        grown = resident(pid) - before
        print(f"{door}: {grown >> 10} KiB after {count} more cycles")
        # Each FUSE export once left up to 32 MiB resident.
        assert grown < 4 * MIB, f"{door}: {grown} bytes more after {count} cycles"


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
