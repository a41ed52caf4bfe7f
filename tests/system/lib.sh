# What every system test needs: a daemon of its own in a scratch folder, checks that count, and a clean end.
# Usage: `. "$(dirname "$0")/lib.sh"; start_daemon; …; finish`

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
varve_bin=${VARVE_BIN:-${CARGO_TARGET_DIR:-$root/target}/debug/varve}
work=$(mktemp -d "${VARVE_TEST_DIR:-${TMPDIR:-/var/tmp}}/varve-test.XXXXXX")
export VARVE_SOCKET=$work/varve.sock
# What clients leave behind goes with the folder.
cd "$work"
daemon_pid='' passed=0 failed=0 finished=''
daemon_options=()

[ -x "$varve_bin" ] || { echo "no $varve_bin: run 'cargo build -p varve-cli' first" >&2; exit 1; }

varve() { "$varve_bin" "$@"; }
pass() { passed=$((passed + 1)); printf '    ok    %s\n' "$*"; }
fail() { failed=$((failed + 1)); printf '    FAIL  %s\n' "$*"; }
# check "what" command…: the command must succeed
check() {
    local what=$1; shift
    if "$@" >"$work/out" 2>&1; then pass "$what"; else fail "$what"; sed 's/^/          /' "$work/out" | tail -n 15; fi
}
# refuse "what" EXIT "pattern" command…: must exit with EXIT and say PATTERN
refuse() {
    local what=$1 want=$2 pattern=$3 code=0; shift 3
    "$@" >"$work/out" 2>&1 </dev/null || code=$?
    if [ "$code" = "$want" ] && grep -qE -- "$pattern" "$work/out"; then pass "$what"
    else fail "$what: exit $code (want $want), want /$pattern/:"; sed 's/^/          /' "$work/out" | tail -n 8; fi
}
same() { # what, got, want
    if [ "$2" = "$3" ]; then pass "$1"; else fail "$1: got '$2', want '$3'"; fi
}
need_root_and() {
    local device
    [ "$(id -u)" = 0 ] || { echo "    SKIPPED: needs root"; finish; exit 0; }
    for device in "$@"; do [ -e "$device" ] || { echo "    SKIPPED: no $device here"; finish; exit 0; }; done
}

start_daemon() {
    mkdir -p "$work/state"
    # Emptied here and not by the daemon's own shell, which may come to it only after the first look below.
    : >"$work/daemon.out"
    "$varve_bin" daemon --state "$work/state" --socket "$VARVE_SOCKET" "${daemon_options[@]}" >"$work/daemon.out" 2>>"$work/daemon.log" &
    daemon_pid=$!
    local n
    for n in $(seq 1200); do
        if grep -q '^ready' "$work/daemon.out"; then return 0; fi
        kill -0 "$daemon_pid" 2>/dev/null || break
        sleep 0.05
    done
    tail -n 20 "$work/daemon.log" >&2
    echo "the daemon did not become ready" >&2
    return 1
}
stop_daemon() {
    kill "$daemon_pid"; local code=0; wait "$daemon_pid" || code=$?; daemon_pid=''
    return "$code"
}
kill_daemon() {
    kill -9 "$daemon_pid"; wait "$daemon_pid" 2>/dev/null || true; daemon_pid=''
}
uri_of() { printf 'nbd+unix:///?socket=%s' "$1"; }
events() { varve status --json | jq -r '.data.events[] | .subject + ": " + .message'; }
has_event() { # what, pattern
    local n
    for n in $(seq 1200); do if events | grep -qE -- "$2"; then pass "$1"; return; fi; sleep 0.05; done
    fail "$1: no event /$2/"; events | tail -n 5
}
json() { jq -er "$1"; }
loop_attach() { losetup -f --show --direct-io=on "$1"; }

# What went wrong first: of a long log, and of the kernel's, only a part may reach who reads this.
tell_logs() {
    echo "    --- the daemon's warnings:"
    grep -E ' (WARN|ERROR) ' "$work/daemon.log" 2>/dev/null | tail -n 12 | sed 's/^/    /' || true
    echo "    --- the kernel's last words:"
    dmesg 2>/dev/null | tail -n 8 | sed 's/^/    /' || true
    echo "    --- room: $(df -h --output=avail,target "$work" 2>/dev/null | tail -n 1 || true)"
    echo "    --- the daemon's log ends:"
    tail -n "$1" "$work/daemon.log" 2>/dev/null | sed 's/^/    /' || true
}
cleanup() {
    local at
    # A command that was not to fail has: the checks behind it were not made.
    if [ -z "$finished" ]; then echo "    FAIL  it ended early"; tell_logs 20; fi
    for at in "$work"/mnt*; do if mountpoint -q "$at" 2>/dev/null; then umount -l "$at" || true; fi; done
    losetup -l -n -O NAME,BACK-FILE 2>/dev/null | awk -v w="$work/" 'index($2, w) == 1 { print $1 }' | xargs -r -n1 losetup -d || true
    if [ -n "$daemon_pid" ]; then kill "$daemon_pid" 2>/dev/null || true; wait "$daemon_pid" 2>/dev/null || true; fi
    for at in "$work"/fuse*; do if mountpoint -q "$at" 2>/dev/null; then umount -l "$at" || true; fi; done
    [ -n "${VARVE_KEEP:-}" ] || rm -rf "$work"
}
trap cleanup EXIT
finish() {
    finished=1
    printf '    %s: %d passed, %d failed\n' "$(basename "$0")" "$passed" "$failed"
    if [ "$failed" != 0 ]; then tell_logs 12; fi
    [ "$failed" = 0 ]
}
# eventually "what" WANT command…: the command prints WANT within a minute
eventually() {
    local what=$1 want=$2 got='' n; shift 2
    for n in $(seq 600); do got=$("$@"); if [ "$got" = "$want" ]; then pass "$what"; return; fi; sleep 0.1; done
    fail "$what: got '$got', want '$want'"
}
