#!/bin/sh
# The farm in C gives the right answer although one of its workers dies. farm.sh NDRUN FARM
set -eu
ndrun=$1 farm=$2
answer='[0] farm: 17984 primes below 200000'

# says TEXT LINE: the text has the line.
says() {
	printf '%s\n' "$1" | grep -qF "$2" || { printf 'no line %s in\n%s\n' "$2" "$1"; exit 1; }
}

got=$("$ndrun" -n 4 "$farm" 2>&1) || { printf '%s\n' "$got"; exit 1; }
says "$got" "$answer"
got=$("$ndrun" --on-death continue -n 4 "$farm" die 2>&1) && status=0 || status=$?
[ $status = 137 ] || { printf 'exit status %s\n%s\n' $status "$got"; exit 1; }
says "$got" "$answer"
says "$got" '[0] farm: rank 2 has died'
says "$got" 'was killed by signal SIGKILL (killed); the other ranks go on'
got=$("$ndrun" --on-death continue -n 3 "$farm" die 2>&1) && exit 1 || says "$got" "$answer"

# A worker dies before it is connected.
plan=$(mktemp)
trap 'rm -f "$plan"' EXIT
echo '{"rules": [{"operation": "connect", "rank": 2, "action": "kill"}]}' >"$plan"
got=$("$ndrun" --on-death continue --faults "$plan" -n 4 "$farm" 2>&1) && status=0 || status=$?
[ $status = 137 ] || { printf 'exit status %s\n%s\n' $status "$got"; exit 1; }
says "$got" "$answer"
says "$got" '[0] farm: rank 2 is lost: connect: '
says "$got" '[0] farm: rank 2 has died'
