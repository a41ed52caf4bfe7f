#!/usr/bin/env python3
"""The least that a mapper can be: a volume whose last MiB comes first in a file: backwards.py SOCKET FILE"""
import contextlib, os, socket, struct, sys

MIB = 1 << 20
HELLO, MAP, WELCOME, DEVICE, MAPPED = 1, 3, 65, 66, 67


def serve(engine, file):
    def send(kind, number, body, files=()):
        socket.send_fds(engine, [struct.pack("<HHIQ", kind, 0, len(body), number) + body], files)

    stream = engine.makefile("rb")
    while header := stream.read(16):
        kind, _, length, number = struct.unpack("<HHIQ", header)
        body = stream.read(length)
        if kind == HELLO:
            (size,) = struct.unpack_from("<Q", body, 16)
            os.ftruncate(file, size)
            send(DEVICE, 0, struct.pack("<IB3x", 0, 1), [file])
            send(WELCOME, 0, struct.pack("<HHI", 1, 2, 0))
        elif kind == MAP:
            at = struct.unpack_from("<Q", body)[0] // MIB * MIB
            place = size - MIB - at
            send(MAPPED, number, struct.pack("<QQQBBHIQQII", 1, at, MIB, 0, 3, 0, 0, place, 0, 0, 0xFFFFFFFF))


os.umask(0o177)
if os.path.exists(sys.argv[1]):
    os.unlink(sys.argv[1])
listener, file = socket.socket(socket.AF_UNIX), os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
listener.bind(sys.argv[1])
listener.listen()
while True:
    with contextlib.suppress(ConnectionError):  # an engine that dies comes back
        serve(listener.accept()[0], file)
