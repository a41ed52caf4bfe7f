"""A SQLite database that knows what it must hold: written until its disk goes away, then checked in full.

ledger.py write DATABASE COMMITTED JOURNAL SEED   transactions, one after the other, until a write fails or SIGTERM; what is
                                                  committed is told in COMMITTED, which lies on another disk
ledger.py verify DATABASE COMMITTED               every page, every row, and everything that was committed; exit 1 otherwise

Rule: a transaction whose commit returned is there, a transaction that is there is there as a whole.
"""

import hashlib
import random
import signal
import sqlite3
import sys


def content(row, version):
    """What a row holds: 100 to 4000 bytes that only this version of it has."""
    seed = hashlib.sha256(f"{row}.{version}".encode()).digest()
    return seed * (4 + seed[0] // 2)


def write(path, committed_path, journal, seed):
    rng = random.Random(int(seed))
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    try:
        base = sqlite3.connect(path, isolation_level=None)
        base.execute(f"PRAGMA journal_mode={journal}")
        # The strictest of each: in a write-ahead log FULL syncs at every commit; EXTRA syncs the folder, too.
        base.execute("PRAGMA synchronous=" + ("FULL" if journal == "wal" else "EXTRA"))
        base.execute("PRAGMA wal_autocheckpoint=100")
        base.execute("BEGIN IMMEDIATE")
        base.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, version INTEGER NOT NULL, content BLOB NOT NULL)")
        base.execute("CREATE INDEX IF NOT EXISTS by_version ON rows (version, id)")
        base.execute("CREATE TABLE IF NOT EXISTS books (transactions INTEGER, rows INTEGER, versions INTEGER)")
        base.execute("INSERT INTO books SELECT 0, 0, 0 WHERE NOT EXISTS (SELECT * FROM books)")
        base.execute("COMMIT")
        with open(committed_path, "a", encoding="ascii") as committed:
            while not stopping:
                done = transaction(base, rng)
                committed.write(f"{done}\n")
                committed.flush()
        base.close()
    except (sqlite3.Error, OSError) as broken:
        print(f"ledger: {broken}")


def transaction(base, rng):
    """Some new rows, some changed, some gone; the books tell of all of them. How many transactions there were."""
    base.execute("BEGIN IMMEDIATE")
    done, rows, versions = base.execute("SELECT transactions, rows, versions FROM books").fetchone()
    last = base.execute("SELECT coalesce(max(id), 0) FROM rows").fetchone()[0]
    for row in range(last + 1, last + rng.randrange(2, 8)):
        base.execute("INSERT INTO rows VALUES (?, 1, ?)", (row, content(row, 1)))
        rows, versions = rows + 1, versions + 1
    for row in {rng.randrange(1, last + 1) for _ in range(4)} if last else ():
        found = base.execute("SELECT version FROM rows WHERE id = ?", (row,)).fetchone()
        if found and rng.random() < 0.2:
            base.execute("DELETE FROM rows WHERE id = ?", (row,))
            rows, versions = rows - 1, versions - found[0]
        elif found:
            base.execute("UPDATE rows SET version = ?, content = ? WHERE id = ?", (found[0] + 1, content(row, found[0] + 1), row))
            versions += 1
    base.execute("UPDATE books SET transactions = ?, rows = ?, versions = ?", (done + 1, rows, versions))
    base.execute("COMMIT")
    return done + 1


def verify(path, committed_path):
    base = sqlite3.connect(path)
    wrong = []
    sound = [line for (line,) in base.execute("PRAGMA integrity_check")]
    if sound != ["ok"]:
        wrong.append(f"integrity_check: {sound[:3]}")
    done, rows, versions = base.execute("SELECT transactions, rows, versions FROM books").fetchone()
    there = base.execute("SELECT count(*), sum(version) FROM rows").fetchone()
    if there != (rows, versions):
        wrong.append(f"{there} rows and versions are there, the books say {(rows, versions)}")
    bad = [row for row, version, blob in base.execute("SELECT id, version, content FROM rows") if blob != content(row, version)]
    if bad:
        wrong.append(f"rows {bad[:5]} hold something else")
    with open(committed_path, encoding="ascii") as file:
        committed = max([int(line) for line in file], default=0)
    if done < committed:
        wrong.append(f"{committed} transactions were committed, {done} are there")
    print(f"{committed} committed, {done} there, {rows} rows" + "".join(f"; {line}" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    verbs = {"write": write, "verify": verify}
    sys.exit(verbs[sys.argv[1]](*sys.argv[2:]))
