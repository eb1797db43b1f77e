#!/bin/sh
# Programs that rely on more than the model promises are successful, and fail with a weak order. The seed that ndrun prints fails
# again. weak_mistakes.sh NDRUN PROGRAM
set -eu
ndrun=$1 program=$2
tries=5 # the mistakes show in nearly each run

# fails SEED NAME TEXT: runs the program until it fails, and prints the output, which has to contain TEXT.
fails() {
	i=0
	while [ $i -lt $tries ]; do
		if ! out=$("$ndrun" -n 2 --weak-order "$1" "$program" "$2" 2>&1); then
			case $out in
			*"$3"*) printf '%s\n' "$out" && return ;;
			esac
			printf '%s: no "%s" in\n%s\n' "$2" "$3" "$out" >&2
			return 1
		fi
		i=$((i + 1))
	done
	echo "$2: --weak-order $1: it is successful $tries times" >&2
	return 1
}

while IFS='|' read -r name text; do
	"$ndrun" -n 2 "$program" "$name" </dev/null || { echo "$name: fails without a weak order"; exit 1; }
	out=$(fails random "$name" "$text" </dev/null)
	seed=$(printf '%s\n' "$out" | sed -n 's/^ndrun: the job failed with a weak order; --weak-order \([0-9]*\) repeats it; docs\/weak-order.md lists the mistakes that it shows$/\1/p')
	[ -n "$seed" ] || { printf '%s: no seed in\n%s\n' "$name" "$out"; exit 1; }
	fails "$seed" "$name" "$text" </dev/null >/dev/null
done <<end
polls the last word of a Write|is missing
overwrites what it reads|but a Write is later
sends what it reads|was sent before the Read
uses more entries than it asked for|2 scatter/gather entries, granted 1
end
