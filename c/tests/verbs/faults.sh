#!/bin/sh
# Fault plans act on the distribution's programs, which report what a card would, and so do other modes of a job. faults.sh NDRUN
set -eu
ndrun=$1
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
port=$((26000 + $$ * 61 % 1400)) # no other script has these
fail() { echo "$*" && cat "$work/plan.yaml" "$work/output" && exit 1; }
tries=0
# cannot_measure reports whether perftest has given up because it could not measure the clock of a loaded machine. Only some times.
cannot_measure() { [ $((tries += 1)) -lt 50 ] && grep -q "Can't produce a report\|Correlation coefficient" "$work/output"; }
has() { grep -qE -e "$1" "$work/output" || fail "no $1 in"; }
# job RULE SERVER CLIENT runs a server and its client with a plan of one rule, which has to act.
job() {
	printf 'rules: [{%s}]\n' "$1" >"$work/plan.yaml"
	while
		port=$((port + 1)) status=0
		SOFTND_DEBUG=1 "$ndrun" --verbs --timeout 300s --on-death continue --faults "$work/plan.yaml" -n 1 $2 -p $port : --after listen -n 1 $3 -p $port >"$work/output" 2>&1 || status=$?
		cannot_measure
	do :; done
	has '^ndrun: fault rule 1 .* acted'
	echo "$1"
}
pair() { job "$1" "$2" "$2 127.0.0.1"; }
# The tenth Write of the server is refused.
job 'operation: write, rank: 0, nth: 10, action: fail, status: AccessViolation' 'rping -s -v -a 127.0.0.1 -C 20' 'rping -c -v -a 127.0.0.1 -C 20'
has '^\[0\] cq completion failed status 10$'
has '^\[0\] softnd: queue pair .*: remote access error: write: fault rule 1'
has '^\[1\] ping data: rdma-ping-8: '
! grep -q '^\[1\] ping data: rdma-ping-9: ' "$work/output" || fail 'a Write too many'
test $status != 0
# refused STATUS RULE: a Write of a client fails with a status of ibv_wc.
refused() {
	pair "operation: write, rank: 1, nth: 7, $2" 'ib_write_bw -F -n 20'
	has "^\[1\]  Failed status $1: "
	test $status != 0
}
refused 13 'action: fail, status: IOTimeout'
refused 11 'action: fail, status: RemoteError, phase: complete'
refused 9 'action: fail, status: InvalidDeviceRequest'
refused 12 'action: drop, after: 100'
refused 10 'action: invalidate'
pair 'operation: write, rank: 1, nth: 7, phase: post, action: fail, status: NoMoreEntries' 'ib_write_bw -F -n 20'
has "^\[1\] Couldn't post send"
pair 'operation: send, rank: 1, nth: 5, action: corrupt' 'ibv_rc_pingpong -c -n 20'
has '^\[0\] invalid data in page 0$'
pair 'operation: register, rank: 0, action: exhaust' 'ibv_rc_pingpong -n 20'
has "^\[0\] Couldn't register MR$"
pair 'operation: write, rank: 1, nth: 7, action: kill' 'ib_write_bw -F -n 20'
has '^ndrun: rank 1 .* was killed by signal SIGKILL'
# A delay of 20 ms is in the latency that the client reports: the least of all.
pair 'operation: read, rank: 1, action: delay, delay: 20ms' 'ib_read_lat -F -n 5'
test $status = 0
least=$(sed -n 's/^\[1\]  *2  *5  *\([0-9]*\)\..*/\1/p' "$work/output")
test "$least" -ge 20000 || fail "a latency of $least us"
# A weak order of requests, and checks of all payloads, change nothing that these programs see.
for option in '--weak-order 1' --integrity; do
	for program in 'ibv_rc_pingpong -c -n 100' 'ib_write_lat -F -n 20' 'ib_atomic_bw -F -n 20'; do
		until
			port=$((port + 1))
			"$ndrun" --verbs --timeout 300s $option -n 1 $program -p $port : --after listen -n 1 $program -p $port 127.0.0.1 >"$work/output" 2>&1
		do
			cannot_measure || fail "$option: $program"
		done
		echo "$option: $program"
	done
done
