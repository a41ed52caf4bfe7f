#!/usr/bin/env python3
"""A copy-on-write overlay, as examples/cow.rs, with the standard library alone: cow.py SOCKET BASE OVERLAY"""
import contextlib, os, socket, struct, sys

CLUSTER = 64 << 10
EXTENTS_MAX = 1024
HELLO, HELD, MAP, FLUSH, TRIM, INVALIDATED, DURABLE, FAILED = range(1, 9)
WELCOME, DEVICE, MAPPED, INVALIDATE, FLUSHED, TRIMMED = range(65, 71)
READ, WRITE, DATA, COPY = 1, 2, 0, 3
EXTENT = struct.Struct("<QQBBHIQQII")
NONE = 0xFFFFFFFF


class Overlay:
    def __init__(self, base, overlay):
        self.base = os.open(base, os.O_RDONLY)
        self.own = os.open(overlay, os.O_RDWR | os.O_CREAT, 0o600)
        self.map_file = overlay + ".map"
        self.clusters = {}

    def load(self):
        if os.path.exists(self.map_file):
            self.clusters = {int(at): int(own) for at, own in map(str.split, open(self.map_file))}

    def map(self, offset, length, write):
        # What does not fit into one message is asked for again.
        for at in range(offset // CLUSTER * CLUSTER, offset + length, CLUSTER)[:EXTENTS_MAX]:
            run, own = min(CLUSTER, self.size - at), self.clusters.get(at)
            if own is not None:
                yield EXTENT.pack(at, run, DATA, READ | WRITE, 0, 0, own, 0, self.device + 1, NONE)
            elif not write:
                yield EXTENT.pack(at, run, DATA, READ, 0, 0, at, 0, self.device, NONE)
            else:
                own = self.clusters[at] = max(self.clusters.values(), default=-CLUSTER) + CLUSTER
                yield EXTENT.pack(at, run, COPY, READ | WRITE, 0, 0, own, at, self.device + 1, self.device)

    def flush(self):
        with open(self.map_file + ".new", "w") as file:
            file.writelines(f"{at} {own}\n" for at, own in self.clusters.items())
            file.flush()
            os.fsync(file.fileno())
        os.rename(self.map_file + ".new", self.map_file)


def messages(stream):
    while header := stream.read(16):
        kind, _, length, number = struct.unpack("<HHIQ", header)
        yield kind, number, stream.read(length)


def serve(engine, overlay):
    def send(kind, number, body, files=()):
        socket.send_fds(engine, [struct.pack("<HHIQ", kind, 0, len(body), number) + body], files)

    for kind, number, body in messages(engine.makefile("rb")):
        if kind == HELLO:
            overlay.size, _, overlay.device = struct.unpack_from("<QII", body, 16)
            overlay.clusters = {}
            overlay.load()
            os.ftruncate(overlay.own, 2 * overlay.size)
            send(DEVICE, 0, struct.pack("<IB3x", overlay.device, 0), [overlay.base])
            send(DEVICE, 0, struct.pack("<IB3x", overlay.device + 1, 1), [overlay.own])
            send(WELCOME, 0, struct.pack("<HHI", 1, 3, 0))
        elif kind == HELD:
            for offset, length, state, _, _, _, own, *_ in EXTENT.iter_unpack(body[8:]):
                overlay.clusters.update((offset + at, own + at) for at in range(0, length, CLUSTER) if state == DATA)
        elif kind == MAP:
            offset, length, write = struct.unpack("<QQB7x", body)
            extents = list(overlay.map(offset, length, write))
            send(MAPPED, number, struct.pack("<Q", len(extents)) + b"".join(extents))
        elif kind == FLUSH:
            overlay.flush()
            send(FLUSHED, number, struct.pack("<Q", 0))
        elif kind == FAILED:
            overlay.clusters.pop(struct.unpack_from("<Q", body)[0], None)


def main(path, base, overlay):
    os.umask(0o177)
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    overlay = Overlay(base, overlay)
    while True:
        engine, _ = listener.accept()
        with engine, contextlib.suppress(ConnectionError):  # an engine that dies comes back
            serve(engine, overlay)


main(*sys.argv[1:])
