#!/bin/sh
# A report of ndrun names the queue pairs of a rank that hangs, and the causes. hang.sh NDRUN HANG, the program of that name
set -eu
output=$(mktemp)
trap 'rm -f "$output"' EXIT
# missing prints the first line that the output does not have. A program that a busy machine makes slow has another report before. A standstill is
# reported once; a machine that is busy in that moment has another job, which it reports later.
missing() {
	set -- $(grep -m 1 '^0x' "$output")
	[ $# = 4 ] || { echo 'numbers of four queue pairs' && return; }
	for line in "likely cause: rank 0 has posted no receive on queue pair $2 for the send of rank 0 (on its queue pair $1)" \
		"queue pair $1 with queue pair $2 of rank 0: connected; requests outstanding: 1, the oldest a send for which the peer has posted no receive" \
		"queue pair $3: waits for queue pair $2 of rank 0 to name it at RTR" \
		"queue pair $4: waits for queue pair 0xfffff0, which no process has"; do
		grep -qF "$line" "$output" || { echo "$line" && return; }
	done
}

for after in 1 4 16; do
	"$1" --verbs --no-label --hang-after $after --timeout 100 -n 1 "$2" >"$output" 2>&1 &
	job=$!
	while line=$(missing) && [ -n "$line" ] && kill -0 $job 2>/dev/null; do
		sleep 0.1
	done
	kill $job 2>/dev/null || :
	wait $job || :
	[ -n "$line" ] || exit 0
done
echo "no $line in: $(cat "$output")"
exit 1
