#!/bin/sh
# The speed of the distribution's perftest over our libraries, in alternating rounds with its own loop over a stub (verbs_stub.c), the bare cache
# line and memcpy. Both processes are pinned. verbs_speed.sh BUILD NDBENCH ROUNDS prints the medians, and their least and most.
set -eu
build=$1 ndbench=$2 rounds=$3
work=$(mktemp -d)
area=/dev/shm/${work##*/}
trap 'rm -rf "$work" "$area".*' EXIT
gcc -O2 -shared -fPIC -D_GNU_SOURCE "$(dirname "$0")/verbs_stub.c" -o "$work/stub.so"
export LD_LIBRARY_PATH="$build/lib/softnd/verbs" SOFTND_VERBS_FABRIC="speed-$$"
port=$((20000 + $$ % 20000))
# pair VARIABLES PROGRAM ARGUMENTS... leaves the table of a program's client in $work/client.
pair() {
	variables=$1
	shift
	port=$((port + 1))
	env $variables STUB_OWN="$area.s" STUB_PEER="$area.c" timeout 100 taskset -c 0 "$@" -F -p $port >"$work/server" 2>&1 &
	until grep -qi ":$(printf %04x $port) [0:]* 0A" /proc/net/tcp; do
		kill -0 $! || { cat "$work/server" && exit 1; }
	done
	env $variables STUB_OWN="$area.c" STUB_PEER="$area.s" timeout 100 taskset -c 1 "$@" -F -p $port localhost >"$work/client" 2>&1 && wait $! || { cat "$work/client" && exit 1; }
}
# figure NAME COLUMN keeps a column of that table.
figure() { awk -v column="$2" '/^ *[0-9]/ && NF >= 5 {v = $column} END {print v}' "$work/client" >>"$work/of $1"; }
latency() {
	name=$1
	shift
	pair "$@" -C -s 8 -n 20000
	figure "$name, cycles" 5
}
bandwidth() {
	name=$1
	shift
	pair "$@" -n 50000
	figure "$name, MiB a second" 4
	figure "$name, M messages a second" 5
}
limits() {
	"$ndbench" "$1" -s "$2" -D 50ms -r 1 --quiet --lang c --perf "$build/bench/softnd_perf" --csv "$work/csv"
	awk -F, -v name="$3" -v out="$work/of " 'NR == 1 {for (i = 1; i <= NF; i++) at[$i] = i} NR == 2 {unit = $at["unit"]; sub("/", " per ", unit); limit = $at["limit.unit"]; sub("/", " per ", limit); print $at["value"] >>(out name ", " unit); print $at["limit.value"] >>(out $at["limit.name"] ", " limit)}' "$work/csv"
}
while [ "$rounds" -gt 0 ]; do
	rounds=$((rounds - 1))
	latency 'ib_write_lat over the stub' "LD_PRELOAD=$work/stub.so" ib_write_lat
	latency 'ib_write_lat' '' ib_write_lat
	latency 'ib_send_lat' '' ib_send_lat
	latency 'ib_read_lat' '' ib_read_lat
	latency 'ib_atomic_lat' '' ib_atomic_lat
	bandwidth 'ib_write_bw 64 KiB over the stub' "LD_PRELOAD=$work/stub.so" ib_write_bw -s 65536
	bandwidth 'ib_write_bw 64 KiB' '' ib_write_bw -s 65536
	bandwidth 'ib_write_bw 2 B over the stub' "LD_PRELOAD=$work/stub.so" ib_write_bw -s 2
	bandwidth 'ib_write_bw 2 B' '' ib_write_bw -s 2
	bandwidth 'ib_send_bw 2 B' '' ib_send_bw -s 2
	limits write_lat 8 'half round trip of a Write in C'
	limits write_bw 64K 'Writes of 64 KiB in C'
	limits posted 8 'posted Write in C'
done
for f in "$work"/of\ *; do
	sort -n "$f" | awk -v name="${f##*/of }" '{v[NR] = $1} END {print v[int((NR + 1) / 2)], name, "(" v[1] "–" v[NR] ")"}'
done
