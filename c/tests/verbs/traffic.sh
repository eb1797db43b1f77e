#!/bin/sh
# The distribution's programs transfer data between processes, and leave nothing. traffic.sh OURS PART, where PART is one of those below
set -eu
export LD_LIBRARY_PATH="$1" SOFTND_VERBS_FABRIC="traffic-$2-$$" SOFTND_DEBUG=1
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
mkdir "$work/tmp"
port=$((12000 + $$ * 61 % 3000)) # several run at once: see free_port
# Programs exchange their addresses over TCP, or connect through librdmacm, whose ports are names.
listens() { grep -qi ":$(printf %04x $port) [0:]* 0A" /proc/net/tcp /proc/net/tcp6 || grep -q "00010000 .*@softnd-cm-.*-$port\$" /proc/net/unix; }
free_port() {
	port=$((port + 1))
	while listens; do
		port=$((port + 1))
	done
}
# begin PROGRAM ARGUMENTS... starts a server and waits until it listens.
begin() {
	free_port
	TMPDIR=$work/tmp timeout 500 stdbuf -oL "$@" -p $port >"$work/server" 2>&1 &
	server=$!
	until listens; do
		kill -0 $server 2>/dev/null || fail "$@"
	done
}
fail() {
	kill ${server:-} 2>/dev/null || :
	echo "failed: $*"
	cat "$work/client"
	[ ! -e "$work/server" ] || cat "$work/server"
	exit 1
}
# left prints what programs have left: processes, names of sockets, files.
left() {
	env -u SOFTND_VERBS_FABRIC grep -lszx "SOFTND_VERBS_FABRIC=$SOFTND_VERBS_FABRIC" /proc/[0-9]*/environ || :
	grep -aE "$SOFTND_VERBS_FABRIC|softnd-cm-.*-$port\$" /proc/net/unix || :
	find "$work/tmp" -mindepth 1
}
clockless=0
# cannot_measure reports whether perftest has given up because it could not measure the clock of a loaded machine. Only a few times.
cannot_measure() {
	[ $clockless -lt 50 ] && grep -q "Can't produce a report" "$work/client" "$work/server" && clockless=$((clockless + 1))
}
# both SERVER CLIENT runs a server and its client. With a third argument, the server serves until it is killed.
both() {
	: >"$work/client"
	begin $1
	ended=0
	TMPDIR=$work/tmp timeout 500 $2 -p $port >"$work/client" 2>&1 || { ended=client && kill $server 2>/dev/null || :; }
	[ $# = 2 ] || [ $ended = client ] || kill $server
	wait $server || [ $# = 3 ] || [ $ended = client ] || ended=server
	if [ $ended != 0 ]; then
		cannot_measure && both "$@" && return
		fail "$ended of $1"
	fi
	[ -z "$(left)" ] || fail "$1: $(left)"
	echo "$1"
}
# endless PROGRAM ARGUMENTS... starts a server and a client that run until they are killed.
endless() {
	: >"$work/client"
	begin "$@"
	timeout 500 stdbuf -oL "$@" -p $port localhost >"$work/client" 2>&1 &
	client=$!
}
# goes_on PROGRAM ARGUMENTS... fails unless the client runs. Another pair begins if perftest has given up.
goes_on() {
	kill -0 $client 2>/dev/null && return
	cannot_measure || fail "$@"
	kill $server 2>/dev/null || :
	wait $server || :
	endless "$@"
}
now() { echo $(($(date +%s%N) / 1000000)); }
waiting=0
# kill_one SIDE MOMENT PROGRAM ARGUMENTS... kills the server (0) or the client (1) MOMENT seconds after the client has begun. The other one ends by itself,
# but for a server to which no client has connected, and a program that only waits for a message: a card would not tell it.
kill_one() {
	side=$1 moment=$2
	shift 2
	free_port
	case $1 in
	rping) to=-s from=-c ;;
	*) to= from=localhost ;;
	esac
	TMPDIR=$work/tmp "$@" $to -p $port >"$work/server" 2>&1 &
	server=$!
	until listens; do
		kill -0 $server || fail "$@"
	done
	TMPDIR=$work/tmp "$@" $from -p $port >"$work/client" 2>&1 &
	client=$!
	sleep $moment
	if [ $side = 0 ]; then
		killed=$server other=$client
	else
		killed=$client other=$server
	fi
	kill -9 $killed 2>/dev/null || : # it may have ended
	begun=$(now)
	case "$side $*" in
	'1 ib_send_bw'* | *srq_pingpong* | *' -R '*) waits=1 ;;
	*) waits=0 ;;
	esac
	while kill -0 $other 2>/dev/null && [ "$(ps -o stat= -p $other)" != Z ]; do
		if [ $(($(now) - begun)) -gt 1500 ] && { [ $waits = 1 ] || listens; }; then
			waiting=$((waiting + 1))
			kill -9 $other 2>/dev/null || : # it has just ended
			begun=$(($(now) + 100000))
		fi
		[ $(($(now) - begun)) -lt 30000 ] || fail "$* does not end, killed at $moment: $side"
	done
	took=$(($(now) - begun))
	[ $took -lt 0 ] || echo $took $side $moment "$@" >>"$work/times"
	status=0
	wait $other || status=$?
	wait $killed || :
	case $took,$status in
	-*) ;;
	*,13[2-9]) fail "$* ends by signal $((status - 128)), killed at $moment: $side" ;;
	esac
	[ -z "$(left)" ] || fail "$*, killed at $moment: $side: $(left)"
}
# pair PROGRAM ARGUMENTS... runs a server and a client that differ in the address only.
pair() { both "$*" "$* localhost"; }
alone() { "$@" >"$work/client" 2>&1 && [ -z "$(left)" ] || fail "$*: $(left)"; }
stress() { [ "${SOFTND_STRESS:-}" = 1 ]; }
# options_of PROGRAM prints the options of a program of perftest, with the number of transfers.
options_of() {
	printf '%s\n' '-n 100 -R' '-n 100 --use_old_post_send' '-D 2'
	case $1 in
	ib_atomic_*) ;;
	*) echo '-n 5 -a' ;;
	esac
	case $1 in
	*_bw) printf '%s\n' '-n 100 -b' '-n 100 -q 64' ;;
	esac
	case $1 in
	ib_write_*) ;; # perftest refuses the option
	*) echo '-n 100 -e' ;;
	esac
}
connect() { # TIMES
	both "rping -s -v -V -a 127.0.0.1 -C $1" "rping -c -v -V -a 127.0.0.1 -C $1"
	test "$(grep -c '^ping data: rdma-ping-' "$work/client")" = $1 || fail rping
	both "ucmatose -C $1 -b 127.0.0.1" "ucmatose -C $1 -s 127.0.0.1"
	test "$(cat "$work/client" "$work/server" | grep -c 'return status 0')" = 2 || fail ucmatose
	both rdma_server rdma_client
	both cmtime "cmtime -s 127.0.0.1 -c $1" endless
}
perftest=$(for kind in write read send atomic; do echo ib_${kind}_bw ib_${kind}_lat; done)
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
	for program in $perftest; do
		pair $program -F -n 20
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
	;;
options) # of perftest
	! stress || other=$perftest
	for program in ib_atomic_bw ${other:-}; do
		options_of $program | while read -r options; do
			pair $program -F $options </dev/null
		done
	done
	;;
kill)
	for program in ib_write_bw ib_read_bw ib_send_bw; do
		endless $program -F -D 1 --run_infinitely
		until grep -q '^ 65536 ' "$work/client"; do
			goes_on $program -F -D 1 --run_infinitely
		done
		kill -9 $(ps -o pid= --ppid $server)
		wait $client && fail "$program succeeds without its server"
		grep -q 'Failed status 12' "$work/client" || fail "$program reports no RETRY_EXC"
		wait $server || :
		[ -z "$(left)" ] || fail "$program: $(left)"
		echo "$program: the client ends"
	done
	# At random moments, of all programs and both sides. SOFTND_SEED repeats the moments.
	rounds=$(stress && echo 1000 || echo 14)
	awk -v seed="${SOFTND_SEED:-$$}" -v n=$rounds 'BEGIN { srand(seed); print "seed", seed >"/dev/stderr"; for (i = 0; i < n; i++) print i, rand() * 0.5 }' >"$work/moments"
	while read i moment; do
		case $((i / 2 % 7)) in
		0) program='ib_write_bw -F -D 1 --run_infinitely' ;;
		1) program='ib_send_bw -F -D 1 --run_infinitely' ;;
		2) program='ib_read_bw -F -D 1 --run_infinitely' ;;
		3) program='ib_atomic_bw -F -D 1 --run_infinitely' ;;
		4) program='rping -a 127.0.0.1 -C 100000000' ;;
		5) program='ibv_srq_pingpong -n 100000000' ;;
		*) program='ib_write_bw -R -F -D 1 --run_infinitely' ;;
		esac
		kill_one $((i % 2)) $moment $program
	done <"$work/moments"
	sort -n "$work/times" | awk '{ t[NR] = $1 } END { printf "after a kill the other side ends within %d ms (median %d), and %d wait for a message\n", t[NR], t[int(NR / 2) + 1], '"$waiting"' }'
	;;
counted)
	# Counters of the port grow while processes transfer data, and the program that does finds out how much it was.
	count() { LD_PRELOAD="$LD_LIBRARY_PATH/libsoftnd-sys.so" cat /sys/class/infiniband/softnd0/ports/1/counters/$1; }
	test $(count port_xmit_data) = 0
	endless ib_write_bw -F -D 1 --run_infinitely
	least=0
	for turn in 1 2 3; do # a count is 0 if the members do not answer within half a second
		until sent=$(count port_xmit_data) && test $sent -gt $least; do
			goes_on ib_write_bw -F -D 1 --run_infinitely
		done
		until least=$(count port_rcv_data) && test $least -ge $sent; do
			goes_on ib_write_bw -F -D 1 --run_infinitely
		done
	done
	kill $client $server
	wait $client $server || :
	both 'ib_write_bw -F -n 1000' "env LD_PRELOAD=$LD_LIBRARY_PATH/libsoftnd-sys.so ib_write_bw -F -n 1000 -W counters/port_xmit_data localhost"
	grep -q 'counters/port_xmit_data=16384000$' "$work/client" || fail 'another number'
	echo 'counters are live'
	;;
memcheck)
	# valgrind finds no error of ours, with private and adopted memory. perftest has its own ones.
	for SOFTND_VERBS_ADOPT in off auto; do
		export SOFTND_VERBS_ADOPT
		for program in 'ibv_rc_pingpong -c' 'ib_write_bw -F' $(stress && echo ib_send_bw ib_read_bw ib_atomic_bw); do
			pair valgrind --leak-check=no $program -n 100
			! grep -E '^==.*(libibverbs|librdmacm)' "$work/client" "$work/server" || fail "$program has errors"
			grep -q 'ERROR SUMMARY' "$work/client" && grep -q 'ERROR SUMMARY' "$work/server" || fail "$program: no valgrind"
			[ "${program#ib_}" != "$program" ] || grep -q 'ERROR SUMMARY: 0 errors' "$work/client" || fail "$program has errors"
		done
	done
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
	connect 20
	;;
runs) # each program again and again, or only those whose command contains a text
	only=${3:-} plain=1 each=0 runs=0 failures=0
	! stress || plain=100 each=5
	shared=$(ls /dev/shm)
	try() { # TIMES COMMAND...
		case $* in
		0*) return ;;
		*"$only"*) ;;
		*) return ;;
		esac
		times=$1
		shift
		while [ $times -gt 0 ]; do
			("$@") >"$work/run" 2>&1 || { failures=$((failures + 1)) && cat "$work/run"; }
			times=$((times - 1)) port=$((port + 8)) runs=$((runs + 1))
		done
		echo "$runs runs, $failures failures: $*"
	}
	try $plain alone ibv_devices
	try $plain alone ibv_devinfo -v
	try $plain connect 100
	try $plain pair ibv_rc_pingpong -n 100
	try $plain pair ibv_srq_pingpong -n 100
	for option in -e -N -t -c '-s 1' '-s 1000000'; do
		try $each pair ibv_rc_pingpong -n 100 $option
	done
	for program in $perftest; do
		try $plain pair $program -F -n 100
		for options in $(options_of $program | tr ' ' ,); do
			try $each pair $program -F $(echo "$options" | tr , ' ')
		done
	done
	[ "$shared" = "$(ls /dev/shm)" ] || fail "left in /dev/shm: $(ls /dev/shm)"
	[ $failures = 0 ]
	;;
esac
