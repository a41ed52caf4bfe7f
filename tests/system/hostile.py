"""NBD clients that stall, flood and lie. Exit 1 if any of them gets anywhere or keeps others from being served."""

import os
import socket
import struct
import sys
import threading

from nbd_client import Client, NbdError, connect, OPT_MAGIC, READ, REQUEST_MAGIC, WRITE, TRIM, ZEROES

path, export = sys.argv[1], sys.argv[2]
failures = []


def expect(what, condition):
    if not condition:
        failures.append(what)
        print("FAIL", what)


def served():
    """An honest client is still served."""
    client = Client(path, export, timeout=60)
    client.read(0, 4096)
    client.close()


def raw(data, read=True):
    """Sends bytes after the greeting and returns what comes until the server hangs up."""
    sock = connect(path, 60)
    got = b""
    try:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while read and len(got) < 1 << 20:
            part = sock.recv(65536)
            if not part:
                break
            got += part
    except OSError:
        pass
    sock.close()
    return got


def garbage():
    for _ in range(50):
        raw(os.urandom(300))
    for flags in (0, 1, 2, 3, 0xFFFFFFFF):
        raw(struct.pack(">I", flags) + os.urandom(64))


def lying_options():
    for length in (0xFFFFFFFF, 0x7FFFFFFF, 1 << 20):
        raw(struct.pack(">IQII", 3, OPT_MAGIC, 7, length) + b"x" * 100)
    raw(struct.pack(">IQII", 3, OPT_MAGIC, 7, 10) + struct.pack(">I", 0xFFFFFFFF) + b"abcdef")
    raw(struct.pack(">IQII", 3, OPT_MAGIC, 10, 8) + struct.pack(">II", 0xFFFFFFFF, 0xFFFFFFFF))
    raw(struct.pack(">I", 3) + struct.pack(">QII", OPT_MAGIC, 99, 0) * 2000)


def lying_requests():
    client = Client(path, export, timeout=60)
    size = client.size
    cases = [
        (READ, size, 4096), (READ, size - 1, 2), (READ, (1 << 64) - 1, 1), (READ, (1 << 64) - 4096, 4096),
        (TRIM, size - 1, 0xFFFFFFFF), (ZEROES, (1 << 64) - 1, 0xFFFFFFFF), (TRIM, 1 << 63, 1), (77, 0, 0),
    ]
    for command, offset, length in cases:
        try:
            client.call(command, offset, length)
            expect(f"command {command} at {offset:#x}+{length:#x} refused", False)
        except NbdError:
            pass
    try:
        client.call(READ, 0, 0xFFFFFFFF)
        expect("a read of 4 GiB refused", False)
    except (NbdError, ConnectionError, OSError):
        pass
    client = Client(path, export, timeout=60)
    client.sock.sendall(struct.pack(">IHHQQI", REQUEST_MAGIC, 0, WRITE, 1, 0, 0xFFFFFFFF))
    try:
        client.reply()
    except (ConnectionError, OSError):
        pass
    client = Client(path, export, timeout=60)
    client.sock.sendall(os.urandom(4096))
    try:
        client.take(1)
        expect("garbage instead of a request ends the connection", False)
    except (ConnectionError, OSError):
        pass


def stalls():
    """Connections that stop at every stage, held open while an honest client works."""
    held = [connect(path, 60) for _ in range(60)]
    for index in range(20):
        client = Client(path, export, timeout=60)
        head = struct.pack(">IHHQQI", REQUEST_MAGIC, 0, WRITE, 1, 0, 1 << 20)
        client.sock.sendall(head[: index + 4] if index < 20 else head)
        held.append(client.sock)
    # Asks for much and never reads the answers.
    greedy = Client(path, export, timeout=60)
    greedy.sock.settimeout(2)
    try:
        for cookie in range(4000):
            greedy.sock.sendall(struct.pack(">IHHQQI", REQUEST_MAGIC, 0, READ, cookie, 0, 1 << 20))
    except (TimeoutError, OSError):
        pass
    served()
    for sock in held:
        sock.close()
    greedy.sock.close()


def flood():
    def one():
        try:
            for _ in range(100):
                connect(path, 60).close()
        except OSError:
            pass
    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


for attack in (garbage, lying_options, lying_requests, stalls, flood):
    try:
        attack()
        served()
        print("ok", attack.__name__)
    except Exception as error:  # noqa: BLE001 - any failure here is the finding
        expect(f"{attack.__name__}: {error!r}", False)
sys.exit(1 if failures else 0)
