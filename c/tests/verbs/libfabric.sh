#!/bin/sh
# libfabric connects endpoints and transfers data over the device. libfabric.sh NDRUN
set -eu
ndrun=$1
port=$((27500 + $$ * 61 % 1400)) # no other script has these
# run OPTIONS... runs fi_pingpong with all its sizes, and checks of the data.
run() {
	port=$((port + 1))
	output=$("$ndrun" --verbs --timeout 300s -n 1 fi_pingpong -c -B $port "$@" : --after listen -n 1 fi_pingpong -c -P $port "$@" 127.0.0.1 2>&1) || { echo "$output" && exit 1; }
	echo "$output" | grep -q '^\[1\] 1m  *10  *=10 ' || { echo "$output" && exit 1; }
	echo "$*"
}
run -p verbs -e msg
for turn in 1 2; do
	run -p 'verbs;ofi_rxm' -e rdm
	run -p 'verbs;ofi_rxm' -e rdm -m tagged
done
