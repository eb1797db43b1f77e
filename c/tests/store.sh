#!/bin/sh
# The server in C serves all clients, also if one dies while it connects. store.sh NDRUN STORE
set -eu
ndrun=$1 store=$2
plan=$(mktemp)
trap 'rm -f "$plan"' EXIT

# says TEXT LINE: the text has the line.
says() {
	printf '%s\n' "$1" | grep -qF "$2" || { printf 'no line %s in\n%s\n' "$2" "$1"; exit 1; }
}

got=$("$ndrun" -n 4 "$store" 2>&1) || { printf '%s\n' "$got"; exit 1; }
for rank in 1 2 3; do
	says "$got" "[$rank] rank $rank reads 10$rank"
done
cat >"$plan" <<-'EOF'
	rules:
	  - operation: complete-connect
	    rank: 2
	    action: kill
EOF
got=$("$ndrun" --on-death continue --faults "$plan" -n 4 "$store" 2>&1) && status=0 || status=$?
[ $status = 137 ] || { printf 'exit status %s\n%s\n' $status "$got"; exit 1; }
says "$got" '[1] rank 1 reads 101'
says "$got" '[3] rank 3 reads 103'
printf '%s\n' "$got" | grep -q '^ndrun: 0  *code 0 ' || { printf 'the server has failed\n%s\n' "$got"; exit 1; }
