#!/bin/sh
# The distribution's programs transfer data between processes. traffic.sh OURS PART, where PART is one of those below
set -eu
export LD_LIBRARY_PATH="$1" SOFTND_VERBS_FABRIC="traffic-$2-$$" SOFTND_DEBUG=1
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
port=$((20000 + $$ % 20000))
# Programs exchange their addresses over TCP, or connect through librdmacm, whose ports are names.
listens() { grep -qi ":$(printf %04x $port) [0:]* 0A" /proc/net/tcp /proc/net/tcp6 || grep -q "00010000 .*@softnd-cm-.*-$port\$" /proc/net/unix; }
# begin PROGRAM ARGUMENTS... starts a server and waits until it listens.
begin() {
	port=$((port + 1))
	timeout 100 stdbuf -oL "$@" -p $port >"$work/server" 2>&1 &
	server=$!
	until listens; do
		kill -0 $server 2>/dev/null || fail "$@"
	done
}
fail() { echo "failed: $*"; cat "$work/server" "$work/client"; exit 1; }
# pair PROGRAM ARGUMENTS... runs a server and its client.
pair() {
	: >"$work/client"
	begin "$@"
	timeout 100 "$@" -p $port localhost >"$work/client" 2>&1 || fail "$@"
	wait $server || fail "$@"
	echo "$*"
}
case $2 in
pingpong)
	for options in '' -c -e -N -t '-c -e -N' '-c -N -t' '-s 1 -c' '-s 1000000 -n 10 -c' '-s 1000000 -n 10 -N -c'; do
		pair ibv_rc_pingpong -n 100 $options
	done
	grep -q '10 iters' "$work/client"
	pair ibv_srq_pingpong -n 200
	pair ibv_srq_pingpong -n 200 -c -e
	;;
perftest)
	for kind in write read send atomic; do
		pair ib_${kind}_bw -F -n 100
		pair ib_${kind}_lat -F -n 20
	done
	pair ib_write_bw -F -n 100 --use_old_post_send
	pair ib_send_lat -F -n 20 --use_old_post_send
	pair ib_send_bw -F -n 100 -b -e
	pair ib_write_bw -F -n 128 -l 8 -q 4
	pair ib_send_bw -F -n 100 -I 64 -s 64 -r 64
	;;
sizes)
	for program in ib_write_bw ib_read_bw ib_send_bw; do
		pair $program -F -a -n 5
		grep -q '^ 8388608  *5 ' "$work/client" || fail $program
	done
	[ "${SOFTND_STRESS:-}" = 1 ] || exit 0
	for program in ib_write_lat ib_read_lat ib_send_lat; do
		pair $program -F -a -n 5
	done
	;;
kill)
	for program in ib_write_bw ib_read_bw ib_send_bw; do
		: >"$work/client"
		begin $program -F -D 1 --run_infinitely
		timeout 100 stdbuf -oL $program -F -D 1 --run_infinitely -p $port localhost >>"$work/client" 2>&1 &
		client=$!
		until grep -q '^ 65536 ' "$work/client"; do
			kill -0 $client || fail $program
		done
		kill -9 $(ps -o pid= --ppid $server)
		wait $client && fail "$program succeeds without its server"
		grep -q 'Failed status 12' "$work/client" || fail "$program reports no RETRY_EXC"
		wait $server || :
		echo "$program: the client ends"
	done
	;;
counted)
	# Counters of the port grow while processes transfer data, and the program that does finds out how much it was.
	count() { LD_PRELOAD="$LD_LIBRARY_PATH/libsoftnd-sys.so" cat /sys/class/infiniband/softnd0/ports/1/counters/$1; }
	test $(count port_xmit_data) = 0
	: >"$work/client"
	begin ib_write_bw -F -D 1 --run_infinitely
	timeout 100 ib_write_bw -F -D 1 --run_infinitely -p $port localhost >"$work/client" 2>&1 &
	client=$!
	least=0
	for turn in 1 2 3; do
		until test $(count port_xmit_data) -gt $least; do
			kill -0 $client || fail 'no traffic'
		done
		least=$(count port_rcv_data)
	done
	kill $client $server
	wait $client $server || :
	begin ib_write_bw -F -n 1000
	LD_PRELOAD="$LD_LIBRARY_PATH/libsoftnd-sys.so" ib_write_bw -F -n 1000 -W counters/port_xmit_data -p $port localhost >"$work/client" 2>&1 && wait $server || fail ib_write_bw
	grep -q 'counters/port_xmit_data=16384000$' "$work/client" || fail 'another number'
	echo 'counters are live'
	;;
links)
	# Programs see RoCE, where a path needs a GID.
	export SOFTND_VERBS_LINK=roce
	for index in 0 1 2 3; do
		pair ibv_rc_pingpong -n 20 -g $index
	done
	pair ib_write_lat -F -n 20 -x 3
	pair ib_send_bw -F -n 100
	pair ib_write_lat -R -F -n 20
	begin ibv_rc_pingpong
	ibv_rc_pingpong -p $port localhost >"$work/client" 2>&1 && fail 'a path without a GID'
	wait $server && fail 'a path without a GID'
	grep -q 'the path has no GID' "$work/client" "$work/server" || fail 'no reason'
	# A client in another fabric finds out.
	export SOFTND_VERBS_LINK=
	begin ibv_rc_pingpong -n 20
	SOFTND_VERBS_FABRIC=$SOFTND_VERBS_FABRIC-2 ibv_rc_pingpong -n 20 -p $port localhost >"$work/client" 2>&1 && fail 'another fabric'
	kill $server
	grep -q "LID 0x[0-9a-f]* is fabric \"$SOFTND_VERBS_FABRIC\" of user $(id -u), this process is in fabric \"$SOFTND_VERBS_FABRIC-2\"" "$work/client" || fail 'no fabric'
	echo 'another fabric is named'
	;;
cm)
	for program in ib_write_lat ib_send_bw ib_read_bw; do
		pair $program -R -F -n 20
	done
	begin rping -s -a 127.0.0.1 -C 20 -V
	rping -c -a 127.0.0.1 -C 20 -V -p $port >"$work/client" 2>&1 && wait $server || fail rping
	begin ucmatose -C 20 -b 127.0.0.1
	ucmatose -C 20 -s 127.0.0.1 -p $port >"$work/client" 2>&1 && wait $server || fail ucmatose
	grep -q 'return status 0' "$work/client" "$work/server" || fail ucmatose
	begin rdma_server
	rdma_client -p $port >"$work/client" 2>&1 && wait $server || fail rdma_client
	begin cmtime
	cmtime -s 127.0.0.1 -p $port -c 50 >"$work/client" 2>&1 || fail cmtime
	kill $server # it serves for ever
	echo 'rping, ucmatose, rdma_client, cmtime'
	;;
esac
