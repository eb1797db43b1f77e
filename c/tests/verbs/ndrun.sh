#!/bin/sh
# ndrun and its variables show programs the device. ndrun.sh NDRUN OBJECTS, the test of that name
set -eu
ndrun=$1
unset SOFTND_VERBS_DIR SOFTND_VERBS_DEVICE LD_LIBRARY_PATH LD_PRELOAD
guid=/sys/class/infiniband/softnd0/node_guid
has() { echo "$output" | grep -qE "$1" || { echo "no $1 in: $output"; exit 1; }; }
output=$("$ndrun" --verbs -n 2 ibv_devices : --after 0.1 sh -c "cat $guid; test -c /dev/infiniband/uverbs_softnd0 && echo node" 2>&1)
has '^\[0\] +softnd0[[:space:]]'
has '^\[1\] +softnd0[[:space:]]'
has '^\[2\] [0-9a-f]{4}:'
has '^\[2\] node$'
"$ndrun" --verbs=libs test -e $guid 2>/dev/null && exit 1
output=$("$ndrun" --verbs=libs ibv_devices 2>&1)
has '^\[0\] +softnd0[[:space:]]'
output=$("$ndrun" --verbs=preload env -u LD_LIBRARY_PATH ibv_devices 2>&1)
has '^\[0\] +softnd0[[:space:]]'
# A rank that has joined the job ends well or not, as its exit code says. Two processes of a rank can join, and a wrapper may close descriptors.
objects=$2
output=$("$ndrun" --verbs --timeout 300s -n 2 sh -c "'$objects' & '$objects' && wait \$!" : -n 1 sh -c "unset SOFTND_ARENA_FD; exec '$objects'" 2>&1) || { echo "$output"; exit 1; }
output=$("$ndrun" --verbs -n 1 env SOFTND_DEBUG=1 SOFTND_ARENA_FD=99 SOFTND_CONTROL= "$objects" 2>&1) && exit 1
test "$(echo "$output" | grep -c 'softnd: join fabric: SOFTND_CONTROL=""')" = 1
has 'ndrun: rank 0 .*exited with code 1'
# Two ranks transfer data.
port=$((29000 + $$ * 61 % 1400)) # no other script has these
output=$("$ndrun" --verbs --timeout 300s -n 1 ibv_rc_pingpong -c -p $port : --after listen -n 1 ibv_rc_pingpong -c -p $port localhost 2>&1) || { echo "$output"; exit 1; }
has '^\[1\] 1000 iters'
# A third rank reads what they have transferred.
port=$((port + 1))
output=$("$ndrun" --verbs --timeout 300s -n 1 ibv_rc_pingpong -p $port : --after listen -n 1 ibv_rc_pingpong -p $port localhost : -n 1 sh -c \
	'until n=$(cat /sys/class/infiniband/softnd0/ports/1/counters/port_xmit_data); test $n -gt 0; do :; done; echo counted' 2>&1) || { echo "$output"; exit 1; }
has '^\[2\] counted$'
variables=$("$ndrun" --verbs-env)
output=$(eval "$variables" && ibv_devices 2>&1 && cat $guid)
has '^ +softnd0[[:space:]]'
has '^[0-9a-f]{4}:'
# Two shells with these variables: server and client. shell COMMAND... runs a command in one, as the user that $user sets, in place of this shell.
shell() { exec env SOFTND_DEBUG=1 SOFTND_VERBS_FABRIC=shells-$$ $user sh -c 'eval "$1"; shift; exec "$@"' shell "$variables" timeout 300 "$@" -p $port; }
listens() { grep -qi ":$(printf %04x $port) [0:]* 0A" /proc/net/tcp /proc/net/tcp6; }
serve() {
	port=$((port + 1)) user=
	shell "$@" >/dev/null 2>&1 &
	server=$!
	until listens; do
		kill -0 $server
	done
}
serve ibv_rc_pingpong -c
output=$(shell ibv_rc_pingpong -c localhost 2>&1) && wait $server || { echo "$output"; exit 1; }
has '^1000 iters'
# Another user has other fabrics of the same names, and is told so.
other='setpriv --reuid=65534 --regid=65534 --clear-groups'
if [ "$(id -u)" != 0 ] || ! $other test -x "$ndrun"; then
	echo 'with one user only: another one needs root, and a folder that all may read'
	exit
fi
serve ibv_rc_pingpong
user=$other
output=$(shell ibv_rc_pingpong localhost 2>&1) && { echo "$output"; exit 1; }
kill $server
has 'is fabric "shells-[0-9]*" of user 0, this process is in fabric "shells-[0-9]*" of user 65534'
has 'transport retry counter exceeded: send: .*no endpoint of this fabric has the number'
