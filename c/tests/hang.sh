#!/bin/sh
# ndrun names the cause if C ranks hang, and what each of them waits for. hang.sh NDRUN PROGRAM
set -eu
ndrun=$1 program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# missing FILE LINE...: prints the first of the lines, which are patterns, that the last report in the output of a job does not have. In it, each rank
# has answered. A job that a busy machine makes slow may make no progress before it hangs; then there are several reports.
missing() {
	last=$(awk '/^ndrun: no rank has made progress for /{text = ""} {text = text $0 "\n"} END {printf "%s", text}' "$1")
	shift
	for line; do
		printf '%s\n' "$last" | grep -qE "^ndrun: $line" || { printf '%s' "$line" && return; }
	done
	! printf '%s\n' "$last" | grep -q 'not responding' || printf 'without "not responding"'
}

# report N HOW LINE...: the report of a job of N ranks has each of the lines. The words in $run, if any, start each rank. A standstill is reported once;
# a machine that is busy in that moment has another job, which it reports later.
report() {
	ranks=$1 how=$2
	shift 2
	for after in 1 4 16; do
		"$ndrun" -n "$ranks" --hang-after $after --timeout 150 ${run+sh -c "$run" sh} "$program" "$how" >"$work/$how" 2>&1 &
		job=$! tries=0
		while line=$(missing "$work/$how" "$@") && [ -n "$line" ] && [ "$((tries += 1))" -lt $((100 + 10 * after)) ] && kill -0 "$job" 2>/dev/null; do
			sleep 0.1
		done
		kill "$job" 2>/dev/null || : # it ends by itself if the machine is too busy for the tries
		wait "$job" || :
		[ -n "$line" ] || return 0
	done
	printf '%s: no line %s in the output of the last job\n' "$how" "$line"
	cat "$work/$how"
	exit 1
}

# check is report in the background.
check() {
	report "$@" &
	running="$running $!"
}

pid='[0-9]+' running=
export SOFTND_RECEIVE_TIMEOUT=1m
check 2 crossed 'likely cause: the ranks wait for each other in a circle$' '  rank 0 waits for rank 1: barrier 2$' '  rank 1 waits for rank 0: a message on endpoint 1$' \
	"rank 0 \(test_hang, pid $pid\): barrier 2 for [0-9]" "rank 1 \(test_hang, pid $pid\): wait at completion queue 1 for [0-9]" \
	'  endpoint 1 with endpoint 1 of rank 0: connected; receives outstanding: 1$'
check 3 polls 'likely cause: the ranks wait for each other in a circle$' '  rank 1 waits for rank 0: a message on endpoint 1$' \
	"rank 1 \(test_hang, pid $pid\): empty polls of completion queue 1 for [0-9]" "ranks 0,2 \(test_hang, pid $pid and others\): barrier 2 for [0-9]"
check 2 'lost notify' 'likely cause: rank 0 waits in notify \(SND_NOTIFY_SOLICITED\) at completion queue 1, which already holds results \(1\)'
check 2 'missing receive' 'likely cause: rank 0 has posted no receive on endpoint 1 for the send of rank 1 \(on its endpoint 1\), and is in wait at completion queue 1' \
	'  endpoint 1 with endpoint 1 of rank 0: connected; requests outstanding: 1, the oldest a send for which the peer has posted no receive$'
for how in computes 'computes later'; do
	check 2 "$how" "likely cause: rank 1 \(test_hang, pid $pid\) is in no call of softnd: it computes, polls memory, or waits for something else; rank 0 waits for it \(barrier [23]\): see its stack with gdb -p $pid$" \
		"rank 1 \(test_hang, pid $pid\): in no call of softnd"
done
check 2 connects 'likely cause: the ranks wait for each other in a circle$' '  rank 0 waits for rank 1: accept \(rank 1\)$' "rank 0 \(test_hang, pid $pid\): accept \(rank 1\) for [0-9]"
for one in $running; do
	wait "$one"
done

got=$("$ndrun" -n 3 "$program" abort 2>&1) && status=0 || status=$?
case $status$got in
7*'aborted the job with code 7: there is nothing to do'*) ;;
*) printf 'abort: exit status %s, %s\n' "$status" "$got"; exit 1 ;;
esac

# The same if the ranks are in different time namespaces. The script starts the rank $ahead in one whose clock is ahead by 10,000,000 seconds.
script='[ "$SOFTND_RANK" = "$ahead" ] || exec "$@"; exec unshare --time --monotonic 10000000 "$@"'
if ! unshare --time --monotonic 10000000 true 2>/dev/null; then
	echo 'skipped: no time namespaces, which need root, unshare and Linux 5.6'
	exit 0
fi
export TSAN_OPTIONS="${TSAN_OPTIONS-} atexit_sleep_ms=0" # else the end of each rank takes a second
for ahead in 0 1; do
	export ahead
	for try in 1 2 3 4 5; do
		got=$("$ndrun" -n 2 sh -c "$script" sh "$program" lost 2>&1) && status=0 || status=$?
		case $got in
		*'the other rank was stopped'*) ;; # the machine was too busy for the cause to end in time
		*) break ;;
		esac
	done
	case $status$got in
	7*'ndrun: rank 0 ('*) printf 'lost, rank %s is ahead: rank 0 is blamed: %s\n' "$ahead" "$got"; exit 1 ;;
	7*'ndrun: rank 1 ('*) ;;
	*) printf 'lost, rank %s is ahead: exit status %s, %s\n' "$ahead" "$status" "$got"; exit 1 ;;
	esac
	run=$script report 2 crossed 'likely cause: the ranks wait for each other in a circle$' 'rank 0 .*: barrier 2 for [0-9.]*[1-9][0-9.]*m?s' \
		'rank 1 .*: wait at completion queue 1 for [0-9.]*[1-9][0-9.]*m?s'
done
