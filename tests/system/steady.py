"""Uses a volume without a break, one request after the other, and says how long the longest of them took.

steady.py SOCKET EXPORT   writes, reads back and flushes until SIGTERM; says on standard error that it has begun, and prints {"requests": N, "longest_ms": N, "error": null}
"""

import json
import signal
import struct
import sys
import time

from nbd_client import Client, NbdError

BLOCK = 4096


class Over(Exception):
    """The time is up."""


def stop(*_):
    raise Over


def use(path, export):
    client, requests, longest, error = Client(path, export, 600), 0, 0.0, None
    blocks, begun = client.size // BLOCK, time.monotonic()
    signal.signal(signal.SIGTERM, stop)
    try:
        for count in range(1 << 60):
            at, data = count * 7919 % blocks * BLOCK, struct.pack(">QQ", count, count) * (BLOCK // 16)
            for request in (lambda: client.write(at, data), lambda: client.read(at, BLOCK), client.flush):
                begun = time.monotonic()
                answer = request()
                longest = max(longest, time.monotonic() - begun)
                requests += 1
                if requests == 1:
                    print("begun", file=sys.stderr, flush=True)
                if answer and answer != data:
                    raise NbdError(f"{at} holds something else")
    except Over:
        # The request that is under way counts for as long as it took so far.
        longest = max(longest, time.monotonic() - begun)
    except (OSError, NbdError) as broken:
        error = f"{type(broken).__name__} {broken}"
    print(json.dumps({"requests": requests, "longest_ms": round(longest * 1000), "error": error}))


if __name__ == "__main__":
    use(*sys.argv[1:])
