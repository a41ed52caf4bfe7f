#!/usr/bin/env python3
"""A mapper that joins the volumes that it is given, one behind the other: concat.py SOCKET"""
import contextlib, os, socket, struct, sys

HELLO, MAP, WELCOME, MAPPED, NONE = 1, 3, 65, 67, 0xFFFFFFFF


def sizes(hello):
    (count,), at = struct.unpack_from("<I", hello, 28), 32
    at += 1 + hello[at]
    for _ in range(count):
        yield struct.unpack_from("<Q", hello, at)[0]
        at += 10 + hello[at + 9]


def serve(engine):
    def send(kind, number, body):
        engine.sendall(struct.pack("<HHIQ", kind, 0, len(body), number) + body)

    stream = engine.makefile("rb")
    while header := stream.read(16):
        kind, _, length, number = struct.unpack("<HHIQ", header)
        body = stream.read(length)
        if kind == HELLO:
            devices = list(sizes(body))
            send(WELCOME, 0, struct.pack("<HHI", 1, 2, 0))
        elif kind == MAP:
            at, device = struct.unpack_from("<Q", body)[0], 0
            while at >= sum(devices[: device + 1]):
                device += 1
            start = sum(devices[:device])
            send(MAPPED, number, struct.pack("<QQQBBHIQQII", 1, start, devices[device], 0, 3, 0, 0, 0, 0, device, NONE))


os.umask(0o177)
with contextlib.suppress(FileNotFoundError):
    os.unlink(sys.argv[1])
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
while True:
    with contextlib.suppress(ConnectionError):  # an engine that dies comes back
        serve(listener.accept()[0])
