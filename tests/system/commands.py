"""Random commands against a model of what must be: names, sizes, snapshots, exports, content, exit codes.

commands.py VARVE FOLDER SECONDS SEED

Valid commands and invalid ones, one at a time and several at once, with `kill -9` of the daemon at any moment. The model holds a
record for each volume and pool; a command says which records it changes, and which exit codes it may end with. When the daemon is
killed under a command, each of its records must be as before it or as after it, all in the same way.
"""

import concurrent.futures
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import time

from nbd_client import Client, NbdError

MIB = 1 << 20
BLOCK, PLACES, STRIDE = 4096, 64, 128 << 10
NAMES = ["a", "b", "c", "d"]
SNAPS = ["one", "two", "three"]
OK, USAGE, MISSING, EXISTS, BUSY, FULL, DECLINED = 0, 2, 3, 4, 5, 6, 8


class Wrong(Exception):
    """Something is not as the model says."""


class Volume:
    """A thick or thin volume with its snapshots, or a pool. `contents` are the contents that it may have: more than one only after a kill."""

    def __init__(self, kind, size, pool=None):
        self.kind, self.size, self.pool = kind, size, pool
        self.contents, self.snaps = [{}], {}

    def copy(self):
        other = Volume(self.kind, self.size, self.pool)
        other.contents = [dict(one) for one in self.contents]
        other.snaps = {name: dict(snap, contents=[dict(one) for one in snap["contents"]]) for name, snap in self.snaps.items()}
        return other

    def summary(self):
        """What the lists show of it."""
        return (self.kind, self.size, tuple(sorted((name, snap["size"], snap["held"]) for name, snap in self.snaps.items())))


class Command:
    """Words, the exit codes that they may end with, and the records that they leave if they succeed."""

    def __init__(self, words, exits, changes=None, exports=None):
        self.words, self.exits = words, {exits} if isinstance(exits, int) else set(exits)
        self.changes, self.exports = changes or {}, exports or {}


class World:
    def __init__(self, varve, folder, seed):
        self.varve, self.folder, self.rng = varve, folder, random.Random(seed)
        self.socket = os.path.join(folder, "varve.sock")
        self.volumes, self.exports = {}, {}
        self.stamp, self.done, self.kills, self.history = 0, 0, 0, []
        self.daemon = None
        self.refused = {}

    # --- the program

    def start(self):
        out = open(os.path.join(self.folder, "daemon.out"), "wb+")
        log = open(os.path.join(self.folder, "daemon.log"), "ab")
        words = [self.varve, "daemon", "--state", os.path.join(self.folder, "state"), "--socket", self.socket]
        self.daemon = subprocess.Popen(words, stdout=out, stderr=log)
        until = time.monotonic() + 60
        while b"ready" not in open(out.name, "rb").read():
            if time.monotonic() > until or self.daemon.poll() is not None:
                raise Wrong("the daemon does not become ready")
            time.sleep(0.02)

    def call(self, words, limit=60):
        """Exit code and answer; (None, None) if the daemon was killed meanwhile."""
        try:
            done = subprocess.run([self.varve, *words, "--json"], capture_output=True, timeout=limit, env=dict(os.environ, VARVE_SOCKET=self.socket), cwd=self.folder, stdin=subprocess.DEVNULL, check=False)
        except subprocess.TimeoutExpired:
            raise Wrong(f"no answer after {limit} s: {' '.join(words)}") from None
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            raise Wrong(f"no JSON: {' '.join(words)}: exit {done.returncode}, {done.stdout[:200]!r} {done.stderr[:200]!r}") from None
        return done.returncode, answer

    def ask(self, *words):
        code, answer = self.call(words)
        if code != OK:
            raise Wrong(f"{' '.join(words)}: exit {code}, {answer}")
        return answer["data"]

    def judge(self, command, code, answer):
        """The exit code is one that the model allows, and an error says what mends it."""
        words = " ".join(command.words)
        if code not in command.exits:
            raise Wrong(f"{words}: exit {code}, the model says {sorted(command.exits)}: {answer}")
        if code != OK:
            error = answer.get("error", {})
            if not re.fullmatch(r"V\d{4}", error.get("code", "")) or not error.get("message") or not error.get("help"):
                raise Wrong(f"{words}: exit {code} without a code, a message or help: {answer}")
            self.refused[code] = self.refused.get(code, 0) + 1

    def apply(self, command):
        for name, record in command.changes.items():
            if record is None:
                self.volumes.pop(name, None)
            else:
                self.volumes[name] = record
        for path, name in command.exports.items():
            if name is None:
                self.exports.pop(path, None)
            else:
                self.exports[path] = name

    # --- commands

    def name(self):
        return f"g{self.rng.randrange(2)}/{self.rng.choice(NAMES)}"

    def exported(self, name):
        return [path for path, volume in self.exports.items() if volume == name or volume.startswith(name + "@")]

    def there(self, name, thick_or_thin=True):
        record = self.volumes.get(name)
        return record if record and (record.kind != "pool") == thick_or_thin else None

    def command(self):
        kinds = [self.create] * 5 + [self.snapshot] * 6 + [self.drop_snapshot] * 3 + [self.rollback] * 2 + [self.remove] * 3
        kinds += [self.extend, self.reduce, self.rename, self.hold, self.export, self.export, self.unexport, self.pool, self.remove_pool]
        kinds += [self.invalid] * 2 + [self.look]
        return self.rng.choice(kinds)()

    def create(self):
        name, size = self.name(), self.rng.choice([8, 12, 16, 32]) * MIB
        group = name.split("/")[0]
        thin = self.rng.random() < 0.5
        words = ["lv", "create", name, "--size", str(size)] + (["--pool", "p"] if thin else self.rng.choice([[], ["--type", "striped", "--stripes", "2"]]))
        if name in self.volumes:
            return Command(words, EXISTS if not thin or f"{group}/p" in self.volumes else {EXISTS, MISSING})
        if thin and f"{group}/p" not in self.volumes:
            return Command(words, MISSING)
        stripes = 8 * MIB
        size = -(-size // stripes) * stripes if "striped" in words else size
        return Command(words, OK if thin else {OK, FULL}, {name: Volume("thin" if thin else "thick", size, f"{group}/p" if thin else None)})

    def remove(self):
        name = self.name()
        record = self.there(name)
        asked = self.rng.random() < 0.2
        # Half of them go to the trash, with their snapshots.
        now = self.rng.random() < 0.5
        words = ["lv", "remove", name] + ([] if asked else ["-y"]) + (["--now"] if now else [])
        if not record:
            return Command(words, MISSING)
        kept = record.snaps if now else [snap for snap in record.snaps.values() if snap["held"]]
        if self.exported(name) or kept:
            return Command(words, BUSY)  # Refused before anybody is asked.
        return Command(words, DECLINED) if asked else Command(words, OK, {name: None})

    def extend(self):
        name = self.name()
        record = self.there(name)
        words = ["lv", "extend", name, "--size", "+8M"]
        if not record:
            return Command(words, MISSING)
        if record.size >= 96 * MIB:
            return self.look()
        after = record.copy()
        after.size += 8 * MIB
        return Command(words, OK if record.kind == "thin" else {OK, FULL}, {name: after})

    def reduce(self):
        name = self.name()
        record = self.there(name)
        words = ["lv", "reduce", name, "--size", "8M", "-y"]
        if not record:
            return Command(words, MISSING)
        after = record.copy()
        after.size = 8 * MIB
        # A thin volume may be reduced while only its snapshots are exported: they share nothing that is lost.
        if name in self.exports.values() if record.kind == "thin" else self.exported(name):
            return Command(words, {BUSY, USAGE})
        if record.size <= 8 * MIB:
            return Command(words, {USAGE, BUSY})
        # With snapshots some layouts refuse.
        return Command(words, {OK, BUSY} if record.snaps else OK, {name: after})

    def rename(self):
        name, other = self.name(), self.rng.choice(NAMES)
        group = name.split("/")[0]
        to = f"{group}/{other}"
        record = self.there(name)
        words = ["lv", "rename", name, to]
        if not record:
            return Command(words, MISSING)
        if to in self.volumes:
            return Command(words, {EXISTS, OK, USAGE} if to == name else EXISTS)
        renamed = {path: volume.replace(name, to, 1) for path, volume in self.exports.items() if volume.split("@")[0] == name}
        return Command(words, OK, {name: None, to: record.copy()}, renamed)

    def snapshot(self):
        names = {self.name() for _ in range(self.rng.choice([1, 1, 1, 2, 3]))}
        group = min(names).split("/")[0]
        names = sorted(name for name in names if name.startswith(group))
        snap = self.rng.choice(SNAPS)
        words = ["snap", "create", *(f"{name}@{snap}" for name in names)]
        records = [self.there(name) for name in names]
        exits = set()
        if None in records:
            exits.add(MISSING)
        if any(record and snap in record.snaps for record in records):
            exits.add(EXISTS)
        if exits:
            return Command(words, exits)
        changes = {}
        for name, record in zip(names, records):
            changes[name] = record.copy()
            changes[name].snaps[snap] = {"size": record.size, "held": False, "contents": [dict(one) for one in record.contents]}
        return Command(words, {OK} if all(record.kind == "thin" for record in records) else {OK, FULL}, changes)

    def some_snapshot(self):
        name, snap = self.name(), self.rng.choice(SNAPS)
        record = self.there(name)
        return name, snap, record if record and snap in record.snaps else None

    def drop_snapshot(self):
        name, snap, record = self.some_snapshot()
        words = ["snap", "remove", f"{name}@{snap}", "-y", "--wait"]
        if not record:
            return Command(words, MISSING)
        if record.snaps[snap]["held"] or f"{name}@{snap}" in self.exports.values():
            return Command(words, BUSY)
        after = record.copy()
        del after.snaps[snap]
        return Command(words, OK, {name: after})

    def rollback(self):
        name, snap, record = self.some_snapshot()
        words = ["snap", "rollback", f"{name}@{snap}", "--no-snapshot", "-y", "--wait"]
        if not record:
            return Command(words, MISSING)
        after = record.copy()
        after.contents = [dict(one) for one in record.snaps[snap]["contents"]]
        return Command(words, {OK} if record.kind == "thin" else {OK, FULL}, {name: after})

    def hold(self):
        name, snap, record = self.some_snapshot()
        verb = self.rng.choice(["hold", "release"])
        words = ["snap", verb, f"{name}@{snap}"]
        if not record:
            return Command(words, MISSING)
        after = record.copy()
        after.snaps[snap]["held"] = verb == "hold"
        return Command(words, OK, {name: after})

    def export(self):
        name, snap, record = self.some_snapshot()
        target = f"{name}@{snap}" if record and self.rng.random() < 0.3 else name
        number = self.rng.randrange(12)
        path = os.path.join(self.folder, f"n{number}.sock")
        words = ["export", "create", target, "--nbd", f"unix:{path}"]
        if path in self.exports:
            # One socket may serve several volumes; here each has its own.
            return self.look()
        return Command(words, OK if record or self.there(name) else MISSING, {}, {path: target})

    def unexport(self):
        path = os.path.join(self.folder, f"n{self.rng.randrange(12)}.sock")
        words = ["export", "remove", f"unix:{path}", "-y"]
        return Command(words, OK, {}, {path: None}) if path in self.exports else Command(words, MISSING)

    def pool(self):
        name = f"g{self.rng.randrange(2)}/p"
        words = ["pool", "create", name, "--size", "128M"]
        if name in self.volumes:
            return Command(words, EXISTS)
        return Command(words, {OK, FULL}, {name: Volume("pool", 128 * MIB)})

    def remove_pool(self):
        name = f"g{self.rng.randrange(2)}/p"
        words = ["pool", "remove", name, "-y"]
        if name not in self.volumes:
            return Command(words, MISSING)
        if any(record.pool == name for record in self.volumes.values()):
            return Command(words, BUSY)
        return Command(words, OK, {name: None})

    def invalid(self):
        name = self.name()
        there = name in self.volumes
        return self.rng.choice([
            Command(["lv", "create", name], USAGE),
            Command(["lv", "create", name + "/x", "--size", "8M"], USAGE),
            Command(["lv", "create", name, "--size", self.rng.choice(["0", "-1", "x", "8Q", "99999999999999999999"])], {USAGE, EXISTS} if there else USAGE),
            Command(["lv", "create", "none/x", "--size", "8M"], MISSING),
            Command(["lv", "create", name, "--size", "1E"], EXISTS if there else FULL),
            Command(["lv", "frob", name], USAGE),
            Command(["lv", "show", "g0/nothing"], MISSING),
            Command(["snap", "create", name], USAGE),
            Command(["snap", "create", name + "@" + "x" * 300], {USAGE, MISSING}),
            Command(["snap", "remove", name + "@never", "-y"], MISSING),
            Command(["export", "create", name], USAGE),
            Command(["export", "remove", "e99999", "-y"], MISSING),
            Command(["vg", "create", "g0", os.path.join(self.folder, "g0d0")], EXISTS),
            Command(["vg", "remove", "none", "-y"], MISSING),
            Command(["pv", "remove", os.path.join(self.folder, "g0d0"), "-y"], BUSY),
            Command(["pv", "create", os.path.join(self.folder, "nowhere")], MISSING),
            Command(["job", "wait", "99999"], MISSING),
            Command(["explain", "V9999"], MISSING),
        ])

    def look(self):
        return Command(self.rng.choice([["lv", "list"], ["pv", "list"], ["vg", "list"], ["snap", "list"], ["export", "list"], ["status"], ["job", "list"], ["pool", "list"]]), OK)

    # --- steps

    def step(self):
        chance = self.rng.random()
        if chance < 0.04:
            self.kill_under(self.apart(self.rng.randrange(1, 4)))
        elif chance < 0.12:
            self.at_once(self.apart(self.rng.randrange(2, 5)))
        elif chance < 0.15:
            self.race()
        elif chance < 0.40:
            self.write()
        elif chance < 0.48:
            self.dry(self.command())
        else:
            self.run(self.command())

    def run(self, command):
        self.history.append(" ".join(command.words))
        code, answer = self.call(command.words)
        self.history[-1] += f" -> {code}"
        self.judge(command, code, answer)
        if code == OK:
            self.apply(command)
        self.done += 1

    def dry(self, command):
        """A dry run ends as the command would, and changes nothing: the next look at the lists shows it."""
        if OK not in command.exits or not (command.changes or command.exports) or command.words[1] in ("hold", "release"):
            return
        self.history.append(" ".join(command.words) + " -n")
        code, answer = self.call([word for word in command.words if word != "--wait"] + ["-n"])
        self.judge(command, code, answer)
        self.done += 1

    def touched(self, command):
        """Records on which a command depends."""
        names = {word.split("@")[0] for word in command.words if re.match(r"g\d/", word)} | set(command.changes)
        names |= {record.pool for name, record in self.volumes.items() if name in names and record.pool}
        names |= {f"{name.split('/')[0]}/p" for name in names if "--pool" in command.words}
        names |= {word.removeprefix("unix:") for word in command.words if word.startswith("unix:")}
        return names | set(command.exports) | ({"pv"} if command.words[0] in ("pv", "vg") else set())

    def apart(self, count):
        """Commands that do not depend on each other."""
        commands, taken = [], set()
        for _ in range(count * 3):
            command = self.command()
            touched = self.touched(command)
            exported = {name for name in touched for path in self.exported(name)} | {path for name in touched for path in self.exported(name)}
            if len(commands) < count and not (touched | exported) & taken:
                commands.append(command)
                taken |= touched | exported
        return commands

    def together(self, commands):
        self.history.append(" & ".join(" ".join(command.words) for command in commands))
        self.done += len(commands)
        pool = concurrent.futures.ThreadPoolExecutor(len(commands))
        return [pool.submit(self.call, command.words) for command in commands]

    def at_once(self, commands):
        for command, future in list(zip(commands, self.together(commands))):
            code, answer = future.result()
            self.judge(command, code, answer)
            if code == OK:
                self.apply(command)

    def race(self):
        """Several make the same volume: one does."""
        name = self.name()
        if name in self.volumes:
            return
        commands = [Command(["lv", "create", name, "--size", "8M"], {OK, EXISTS, FULL}, {name: Volume("thick", 8 * MIB)}) for _ in range(3)]
        codes = []
        for command, future in list(zip(commands, self.together(commands))):
            code, answer = future.result()
            self.judge(command, code, answer)
            codes.append(code)
        if OK in codes:
            self.apply(commands[0])
        if sorted(codes) not in ([OK, EXISTS, EXISTS], [FULL] * 3):
            raise Wrong(f"three made {name}: exits {codes}")

    def kill_under(self, commands):
        if not commands:
            return
        self.history.append("kill under:")
        futures = self.together(commands)
        time.sleep(self.rng.random() ** 2 * 0.3)
        self.daemon.kill()
        self.daemon.wait()
        self.kills += 1
        answers = []
        for future in futures:
            try:
                answers.append(future.result()[0])
            except Wrong:
                # What was not answered as a whole was not answered.
                answers.append(None)
        self.start()
        self.end_jobs()
        actual, doors = self.lists()
        for command, code in zip(commands, answers):
            self.settle(command, code, actual, doors)
        self.compare()
        for name in self.rng.sample(sorted(self.volumes), min(3, len(self.volumes))):
            self.verify(name)

    def settle(self, command, code, actual, doors):
        """After a kill: which of both it is. A success that was told counts."""
        changed = command.changes or command.exports
        if not changed or (code is not None and code not in (OK, 1)):
            return
        before = all(summary_of(self.volumes.get(name)) == actual.get(name) for name in command.changes)
        before = before and all(doors.get(path) == self.exports.get(path) for path in command.exports)
        after = all(summary_of(record) == actual.get(name) for name, record in command.changes.items())
        after = after and all(doors.get(path) == name for path, name in command.exports.items())
        words = " ".join(command.words)
        if code == OK and not after:
            raise Wrong(f"{words}: it was told that it is done, and it is not: {[(name, actual.get(name)) for name in command.changes]}")
        if after and before and code != OK:
            for name, record in command.changes.items():
                if record is not None:
                    record.contents += self.volumes[name].contents
        if after:
            self.apply(command)
        elif not before:
            raise Wrong(f"{words}: neither as before nor as after it: {[(name, actual.get(name)) for name in command.changes]}")

    def end_jobs(self):
        for job in self.ask("job", "list"):
            if job["state"] == "running":
                self.call(["job", "wait", job["id"]])

    # --- what is there

    def lists(self):
        """What the program says: summaries by name, volumes by socket."""
        snaps = {}
        for snap in self.ask("snap", "list"):
            if snap["state"] != "active":
                raise Wrong(f"{snap['name']} is {snap['state']}")
            snaps.setdefault(snap["volume"], []).append((snap["name"].split("@")[1], snap["size"], snap["held"]))
        found = {}
        for volume in self.ask("lv", "list"):
            if volume["state"] != "active":
                raise Wrong(f"{volume['name']} is {volume['state']}")
            kind = "thin" if volume["layout"] == "thin" else "thick"
            found[volume["name"]] = (kind, volume["size"], tuple(sorted(snaps.pop(volume["name"], []))))
        if snaps:
            raise Wrong(f"snapshots of no volume: {snaps}")
        for pool in self.ask("pool", "list"):
            # It grows by itself.
            found[pool["name"]] = ("pool", 0, ())
        doors = {}
        for door in self.ask("export", "list"):
            if door["state"] != "serving":
                raise Wrong(f"export {door['id']} of {door['volume']} is {door['state']}")
            doors[door["address"].removeprefix("unix:")] = door["volume"]
        return found, doors

    def compare(self):
        actual, doors = self.lists()
        wanted = {name: summary_of(record) for name, record in self.volumes.items()}
        for name in sorted(wanted.keys() | actual.keys()):
            if wanted.get(name) != actual.get(name):
                raise Wrong(f"{name}: {actual.get(name)} is there, the model says {wanted.get(name)}")
        if doors != self.exports:
            raise Wrong(f"exports: {doors} are there, the model says {self.exports}")

    def open(self, name):
        path = os.path.join(self.folder, "look.sock")
        self.ask("export", "create", name, "--nbd", f"unix:{path}")
        return Client(path, name, 120), path

    def write(self):
        names = [name for name, record in self.volumes.items() if record.kind != "pool"]
        if not names:
            return
        name = self.rng.choice(names)
        record = self.volumes[name]
        self.history.append(f"write {name}")
        client, path = self.open(name)
        for place in self.rng.sample(range(PLACES), self.rng.randrange(1, 8)):
            self.stamp += 1
            client.write(place * STRIDE, struct.pack(">QQ", self.stamp, place) * (BLOCK // 16))
            for content in record.contents:
                content[place] = self.stamp
        client.flush()
        client.close()
        self.ask("export", "remove", f"unix:{path}", "-y")
        self.done += 1

    def verify(self, name):
        record = self.volumes[name]
        if record.kind == "pool":
            return
        for target, holder in [(name, record.__dict__)] + [(f"{name}@{snap}", fields) for snap, fields in record.snaps.items()]:
            client, path = self.open(target)
            seen = {}
            for place in range(PLACES):
                stamp, where = struct.unpack(">QQ", (data := client.read(place * STRIDE, BLOCK))[:16])
                if data != struct.pack(">QQ", stamp, where) * (BLOCK // 16) or (stamp and where != place):
                    raise Wrong(f"{target}: {place} holds what nobody wrote there: {data[:32].hex()}")
                if stamp:
                    seen[place] = stamp
            client.close()
            self.ask("export", "remove", f"unix:{path}", "-y")
            if seen not in holder["contents"]:
                content = holder["contents"][0]
                differs = {place: (seen.get(place), content.get(place)) for place in range(PLACES) if seen.get(place) != content.get(place)}
                raise Wrong(f"{target}: its content is not the model's (place: seen, wanted): {dict(list(differs.items())[:6])}")
            holder["contents"] = [seen]

    # --- all of it

    def go(self, seconds):
        self.start()
        for group in range(2):
            disks = [os.path.join(self.folder, f"g{group}d{disk}") for disk in range(2)]
            self.ask("pv", "create", *disks, "--size", "400M")
            self.ask("vg", "create", f"g{group}", *disks)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(20):
                self.step()
            self.compare()
        self.end_jobs()
        for name in sorted(self.volumes):
            self.verify(name)
        self.compare()
        self.daemon.send_signal(signal.SIGTERM)
        code = self.daemon.wait(120)
        if code:
            raise Wrong(f"the daemon ends with {code}")
        disks = [os.path.join(self.folder, f"g{group}d{disk}") for group in range(2) for disk in range(2)]
        code, answer = self.call(["check", *disks], 120)
        if code:
            raise Wrong(f"check: exit {code}, {answer}")
        self.no_panic()

    def no_panic(self):
        with open(os.path.join(self.folder, "daemon.log"), encoding="utf-8", errors="replace") as log:
            for line in log:
                if re.search(r"panicked|internal error|invariant", line):
                    raise Wrong(f"the daemon's log: {line.strip()}")


def summary_of(record):
    if record is None:
        return None
    return ("pool", 0, ()) if record.kind == "pool" else record.summary()


def main():
    varve, folder, seconds, seed = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    world = World(varve, folder, seed)
    try:
        world.go(seconds)
    except (Wrong, OSError, NbdError, subprocess.TimeoutExpired) as wrong:
        print(f"commands: seed {seed}, after {world.done} commands and {world.kills} kills: {type(wrong).__name__}: {wrong}")
        print("the last commands:\n  " + "\n  ".join(world.history[-12:]))
        about = {word.split("@")[0] for word in world.history[-1].split() if word.startswith(("g0/", "g1/", "unix:"))}
        earlier = [line for line in world.history[:-12] if any(word in line for word in about)]
        print("before them, about the same:\n  " + "\n  ".join(earlier[-12:]))
        try:
            world.no_panic()
        except Wrong as panic:
            print(panic)
        return 1
    finally:
        if world.daemon and world.daemon.poll() is None:
            world.daemon.kill()
            world.daemon.wait()
    refused = sum(world.refused.values())
    print(f"commands: seed {seed}: {world.done} commands, {refused} refused as they must be {dict(sorted(world.refused.items()))}, {world.kills} kills, {world.stamp} writes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
