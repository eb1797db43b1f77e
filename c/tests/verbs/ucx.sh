#!/bin/sh
# UCX opens the device, and transfers data with it. It hides one whose node it does not find, so it needs the preloaded library.
# ucx.sh NDRUN UCP, the program of that name
set -eu
ndrun=$1
fail() { echo "$*" && exit 1; }
has() { "$ndrun" "$1" --no-label ucx_info -d 2>/dev/null | grep -q 'Device: softnd0:1$'; }
"$ndrun" --verbs --no-label ucx_info -d 2>/dev/null | grep -q 'Transport: rc_verbs$' || fail 'no transport rc_verbs'
has --verbs || fail 'no device softnd0:1'
! has --verbs=libs || fail 'a device without its node'
port=$((30500 + $$ * 61 % 1400)) # no other script has these
# run ARGUMENTS... runs ucx_perftest, server and client.
run() {
	port=$((port + 1))
	output=$("$ndrun" --verbs --timeout 300s -n 1 ucx_perftest -p $port -w 10 -n 200 "$@" : --after listen -n 1 ucx_perftest -p $port -w 10 -n 200 "$@" 127.0.0.1 2>&1) || fail "$@: $output"
	echo "$output" | grep -q '^\[1\] Final: * 200 ' || fail "$@: $output"
	echo "$output" | grep 'UCX  ERROR' && fail "$@"
	echo "$*"
}
for test in put_lat put_bw get am_lat am_bw fadd cswap add_mr; do
	run -x rc_verbs -d softnd0:1 -t $test $([ $test != get ] || echo -D bcopy) # there is no short Read
done
# Without datagrams, UCX exchanges its addresses over TCP, if that carries a part of large messages.
export UCX_TLS=rc_verbs,tcp,self UCX_NET_DEVICES=softnd0:1,lo UCX_MAX_EAGER_RAILS=2 UCX_MULTI_LANE_MAX_RATIO=1e9
for test in tag_lat tag_bw tag_sync_lat ucp_am_lat ucp_am_bw; do
	run -t $test
	run -t $test -s 100000
done
# UCX has a thread, with which memory stays private unless it is always adopted.
for adopt in always auto; do
	output=$("$ndrun" --verbs --timeout 300s -n 1 -env SOFTND_VERBS_ADOPT=$adopt "$2" 2>&1) || fail "$adopt: $output"
done
echo "$output" | grep ' lane\[0\]: .*rc_verbs/softnd0:1.*am ' || fail "$output"
