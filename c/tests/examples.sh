#!/bin/sh
# The examples in C of atomics and of borders give their answers, with each executor and with weak orders. examples.sh NDRUN DIRECTORY
set -eu
ndrun=$1
cd "$2"

# answers LINE ARGUMENT...: ndrun with these arguments prints the line.
answers() {
	line=$1
	shift
	got=$("$ndrun" "$@" 2>&1) || { printf 'ndrun %s\n%s\n' "$*" "$got"; exit 1; }
	printf '%s\n' "$got" | grep -qF "$line" || { printf 'ndrun %s: no line %s in\n%s\n' "$*" "$line" "$got"; exit 1; }
}

for exec in auto target; do
	export SOFTND_EXEC=$exec
	for order in "" "--weak-order 1" "--weak-order 2"; do
		# shellcheck disable=SC2086
		set -- $order -n 4
		answers 'counter: each task was done once' "$@" ./counter
		answers 'lock: 600 increments, and none was lost' "$@" ./lock
		answers 'queue: 1500 numbers arrived' "$@" ./queue
		answers 'halo: rank 3 has the serial result' "$@" ./halo
	done
done
