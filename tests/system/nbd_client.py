"""A small NBD client for tests: fixed newstyle, simple replies, raw access for hostile behaviour."""

import socket
import struct
import time

OPT_MAGIC, REPLY_MAGIC = 0x49484156454F5054, 0x0003E889045565A9
REQUEST_MAGIC, SIMPLE_MAGIC = 0x25609513, 0x67446698
READ, WRITE, DISC, FLUSH, TRIM, CACHE, ZEROES = range(7)
FUA = 1


class NbdError(Exception):
    """The server answered with an error number."""


class Client:
    """One connection to one export."""

    def __init__(self, path, export="", timeout=60):
        self.sock = connect(path, timeout)
        magic, option_magic, flags = struct.unpack(">8sQH", self.take(18))
        assert magic == b"NBDMAGIC" and option_magic == OPT_MAGIC
        self.sock.sendall(struct.pack(">I", flags & 3))
        name = export.encode()
        payload = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
        self.sock.sendall(struct.pack(">QII", OPT_MAGIC, 7, len(payload)) + payload)
        self.size = None
        while True:
            _, _, kind, length = struct.unpack(">QIII", self.take(20))
            data = self.take(length)
            if kind == 1:
                break
            if kind & 0x80000000:
                raise NbdError(f"handshake {kind:#x} {data!r}")
            if struct.unpack(">H", data[:2])[0] == 0:
                self.size, self.flags = struct.unpack(">QH", data[2:12])
        self.cookie = 0

    def take(self, length):
        data = bytearray()
        while len(data) < length:
            part = self.sock.recv(length - len(data))
            if not part:
                raise ConnectionError("closed")
            data += part
        return bytes(data)

    def send(self, command, offset, length, payload=b"", flags=0):
        self.cookie += 1
        self.sock.sendall(struct.pack(">IHHQQI", REQUEST_MAGIC, flags, command, self.cookie, offset, length) + payload)
        return self.cookie

    def reply(self):
        magic, error, cookie = struct.unpack(">IIQ", self.take(16))
        assert magic == SIMPLE_MAGIC, hex(magic)
        return cookie, error

    def call(self, command, offset, length, payload=b"", flags=0):
        cookie = self.send(command, offset, length, payload, flags)
        answered, error = self.reply()
        assert answered == cookie
        if error:
            raise NbdError(error)
        return self.take(length) if command == READ else b""

    def read(self, offset, length):
        return self.call(READ, offset, length)

    def write(self, offset, data, fua=False):
        self.call(WRITE, offset, len(data), data, FUA if fua else 0)

    def flush(self):
        self.call(FLUSH, 0, 0)

    def close(self):
        try:
            self.send(DISC, 0, 0)
        finally:
            self.sock.close()


def connect(path, timeout=60):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(timeout)
    until = time.monotonic() + timeout
    while True:
        try:
            sock.connect(path)
            return sock
        except BlockingIOError:
            # The queue of those who want to connect is full; with a timeout the kernel does not wait for room in it.
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
