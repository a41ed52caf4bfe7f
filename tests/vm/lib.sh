# What every test in a virtual machine needs, beside what every system test needs: a guest that boots from exported volumes.
# Usage: `. "$(dirname "$0")/lib.sh"; need_vm; start_daemon; …; boots NAME --disk URI; …; finish`

. "$(dirname "${BASH_SOURCE[0]}")/../system/lib.sh"
vm=$root/tests/vm/vm
# Where the daemon is built for development and the machine is busy, a boot takes half a minute.
vm_seconds=${VARVE_VM_SECONDS:-240}

# need_vm [SUITE]: with the kernel of that suite of Debian
need_vm() {
    local code=0
    "$vm" prepare "$@" >"$work/out" 2>&1 || code=$?
    [ "$code" != 0 ] || return 0
    sed 's/^/    /' "$work/out"
    [ "$code" = 3 ] || fail "the guest is made"
    [ "$code" != 3 ] || echo "    SKIPPED: no virtual machine here: $(tail -n 1 "$work/out")"
    finish; exit
}

# Nanoseconds for which the daemon's threads have run.
daemon_cpu() { cat /proc/"$daemon_pid"/task/*/schedstat | awk '{ sum += $1 } END { printf "%d", sum }'; }

# boots NAME OPTION…: a run of the guest that ends well. Its console is in $work/NAME.console, what it took in $work/NAME.json.
boots() {
    local name=$1 code=0 before=''; shift
    [ -z "$daemon_pid" ] || before=$(daemon_cpu)
    "$vm" boot --limit "$vm_seconds" --report "$work/$name.json" "$@" >"$work/$name.console" 2>&1 || code=$?
    if [ "$code" = 0 ]; then pass "$name"; else fail "$name: exit $code"; tail -n 20 "$work/$name.console" | sed 's/^/          /'; fi
    [ ! -s "$work/$name.json" ] || told "$work/$name.json"
    [ -z "$before" ] || printf '          server: %d ms of CPU\n' $((($(daemon_cpu) - before) / 1000000))
}
# told REPORT: what the guest took, for people
told() {
    jq -r '"          \(.seconds * 10 | round / 10) s", (.disks[] | "          \(.name): \(.reads) reads, " +
        "\(.read_bytes / 1024 | round) KiB; \(.writes) writes, \(.write_bytes / 1024 | round) KiB; \(.flushes) flushes")' "$1"
}
# says NAME PATTERN: lines of its console
says() { grep -E -- "$2" "$work/$1.console"; }
