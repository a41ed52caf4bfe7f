# Disks that fail when they are told: what the tests of faults below a daemon need besides lib.sh.
# Usage: `. "$(dirname "$0")/lib.sh"; . "$here/faults.sh"; fault_disk NAME SIZE; tell NAME stall; …; finish`

faultdisk_bin=${VARVE_FAULTDISK_BIN:-${CARGO_TARGET_DIR:-$root/target}/debug/varve-faultdisk}
[ -x "$faultdisk_bin" ] || { echo "no $faultdisk_bin: run 'cargo build -p varve-faultdisk' first" >&2; exit 1; }
need_root_and /dev/fuse
declare -A fault_pids=()

# fault_disk NAME SIZE [buffered]: $work/NAME is a disk; its content is $work/NAME.content
fault_disk() {
    local name=$1 n
    truncate -s "$2" "$work/$name.content"
    "$faultdisk_bin" serve "$work/$name" "$work/$name.content" "$work/$name.orders" "${@:3}" 2>>"$work/faultdisk.log" &
    fault_pids[$name]=$!
    for n in $(seq 600); do [ -S "$work/$name.orders" ] && return 0; sleep 0.05; done
    cat "$work/faultdisk.log" >&2
    return 1
}
tell() { "$faultdisk_bin" order "$work/$1.orders" "${@:2}"; }
end_fault_disk() {
    tell "$1" quit >/dev/null || kill -9 "${fault_pids[$1]}" || true
    wait "${fault_pids[$1]}" 2>/dev/null || true
    unset "fault_pids[$1]"
}
# A request that hangs in the kernel holds its process: first the disks let go.
end_fault_disks() { local name; for name in "${!fault_pids[@]}"; do tell "$name" heal >/dev/null 2>&1 || true; done; }
faults_cleanup() {
    end_fault_disks
    local name
    if [ -n "$daemon_pid" ]; then kill -9 "$daemon_pid" 2>/dev/null || true; fi
    for name in "${!fault_pids[@]}"; do end_fault_disk "$name" 2>/dev/null; done
    cleanup
}
trap faults_cleanup EXIT

now_ms() { echo $(($(date +%s%N) / 1000000)); }
