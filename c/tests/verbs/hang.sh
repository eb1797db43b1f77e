#!/bin/sh
# A report of ndrun names the queue pairs of a rank that hangs, and the causes. hang.sh NDRUN HANG, the program of that name
set -eu
output=$("$1" --verbs --no-label --timeout 3s -n 1 "$2" 2>&1) && exit 1
set -- $(echo "$output" | head -n 1)
has() { echo "$output" | grep -qF "$1" || { echo "no $1 in: $output"; exit 1; }; }
has "likely cause: rank 0 has posted no receive on queue pair $2 for the send of rank 0 (on its queue pair $1)"
has "queue pair $1 with queue pair $2 of rank 0: connected; requests outstanding: 1, the oldest a send for which the peer has posted no receive"
has "queue pair $3: waits for queue pair $2 of rank 0 to name it at RTR"
has "queue pair $4: waits for queue pair 0xfffff0, which no process has"
