"""What the snapshot tests need beyond the command: scattered writes, comparisons of all bytes, latencies.

snapshots.py scatter SOCKET EXPORT STEP SEED        writes 4 KiB at every STEP bytes; content depends on SEED and place
snapshots.py load SOCKET EXPORT SECONDS SEED        random 4 KiB writes one after the other, until SIGTERM at most; prints latencies in ms
snapshots.py pairs SOCKET_A SOCKET_B SECONDS        counts in both volumes, first in A, then in B; prints latencies
snapshots.py counters SOCKET_A SOCKET_B             the two counters
snapshots.py compare SOCKET_A SOCKET_B DIFF         all bytes compared; DIFF is the JSON of `snap diff`
snapshots.py remove SOCKET NAME…                    asks the daemon to remove; prints the job and the time in ms
"""

import http.client
import json
import random
import signal
import socket
import struct
import sys
import time

from nbd_client import Client, NbdError, WRITE

BLOCK, DEPTH = 4096, 32


def scatter(path, export, step, seed):
    client, flying = Client(path, export), 0
    for at in range(0, client.size, int(step)):
        client.send(WRITE, at, BLOCK, struct.pack(">QQ", int(seed), at) * (BLOCK // 16))
        flying += 1
        if flying == DEPTH:
            settle(client)
            flying -= 1
    for _ in range(flying):
        settle(client)
    client.flush()
    client.close()


def settle(client):
    _, error = client.reply()
    if error:
        raise NbdError(error)


def summary(latencies):
    latencies.sort()
    at = lambda share: latencies[min(len(latencies) - 1, int(len(latencies) * share))] * 1000
    return json.dumps({"writes": len(latencies), "p50_ms": round(at(0.5), 3), "p99_ms": round(at(0.99), 3), "max_ms": round(latencies[-1] * 1000, 3)})


def load(path, export, seconds, seed):
    client, rng = Client(path, export), random.Random(int(seed))
    end, latencies = time.time() + float(seconds), []
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    try:
        while time.time() < end and not stopping:
            at = rng.randrange(client.size // BLOCK) * BLOCK
            data = rng.randbytes(BLOCK)
            begun = time.perf_counter()
            client.write(at, data)
            latencies.append(time.perf_counter() - begun)
    except (ConnectionError, OSError, NbdError) as broken:
        print(f"load: {broken}", file=sys.stderr)
    print(summary(latencies))


def pairs(one, two, seconds):
    clients = [Client(one), Client(two)]
    # It goes on from where it was: begun anew it would be behind in A while B still holds the last count.
    count = struct.unpack(">Q", clients[1].read(0, BLOCK)[:8])[0]
    end, latencies = time.time() + float(seconds), []
    while time.time() < end:
        count += 1
        for client in clients:
            begun = time.perf_counter()
            client.write(0, struct.pack(">Q", count) * (BLOCK // 8))
            latencies.append(time.perf_counter() - begun)
    print(summary(latencies))


def counters(one, two):
    print(*[struct.unpack(">Q", Client(path).read(0, BLOCK)[:8])[0] for path in (one, two)])


def compare(one, two, path):
    with open(path, encoding="ascii") as file:
        extents = json.load(file)["data"]["extents"]
    clients = [Client(one), Client(two)]
    size = clients[0].size
    listed = bytearray(size // BLOCK)
    last = -1
    for extent in extents:
        first, count = extent["offset"] // BLOCK, extent["length"] // BLOCK
        assert extent["offset"] % BLOCK == 0 and extent["length"] % BLOCK == 0 and extent["offset"] > last, extent
        last = extent["offset"] + extent["length"]
        listed[first:first + count] = b"\1" * count
    missing = needless = differing = 0
    for at in range(0, size, 1 << 20):
        length = min(1 << 20, size - at)
        a, b = (client.read(at, length) for client in clients)
        for block in range(0, length, BLOCK):
            differs = a[block:block + BLOCK] != b[block:block + BLOCK]
            index = (at + block) // BLOCK
            differing += differs
            missing += differs and not listed[index]
            needless += listed[index] and not differs
    print(f"{differing} parts of 4 KiB differ, {len(extents)} extents list {sum(listed)}; {missing} missing, {needless} needless")
    return 1 if missing or needless else 0


class Unix(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path):
        super().__init__("varve")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def remove(path, *names):
    connection = Unix(path)
    connection.connect()
    begun = time.perf_counter()
    connection.request("POST", "/v1/snapshots/remove", json.dumps({"names": names}), {"content-type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    spent = (time.perf_counter() - begun) * 1000
    print(answer.get("data", answer).get("id", answer), round(spent, 2))


if __name__ == "__main__":
    verbs = {"scatter": scatter, "load": load, "pairs": pairs, "counters": counters, "compare": compare, "remove": remove}
    sys.exit(verbs[sys.argv[1]](*sys.argv[2:]))
