#!/bin/sh
# gdb.sh PROGRAM: gdb attaches to two ranks that wait, shows the stacks of all threads, and detaches. The ranks continue.
set -eu
dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
mkfifo "$dir/end"
"$1" "gdb.$$" 0 </dev/null >"$dir/0" & first=$!
"$1" "gdb.$$" 1 <"$dir/end" >"$dir/1" & second=$!
exec 3>"$dir/end"
until grep -q waits "$dir/0" && grep -q waits "$dir/1"; do
	kill -0 $first && kill -0 $second
	sleep 0.05
done

# shows PID TEXT: the stacks of a process contain the library's threads and a text. A rank may need a moment to begin to wait.
shows() {
	local try=0
	while [ $((try += 1)) -lt 50 ]; do
		gdb -nx -batch -iex 'set debuginfod enabled off' -ex 'thread apply all backtrace' -p "$1" >"$dir/stacks" 2>"$dir/errors" </dev/null || break
		if grep -q '"softnd"' "$dir/stacks" && grep -q '"softnd-watch"' "$dir/stacks" && grep -q "$2" "$dir/stacks"; then
			return
		fi
		sleep 0.2
	done
	cat "$dir/errors" "$dir/stacks"
	echo "process $1: no $2"
	exit 1
}

shows $first 'snd_cq_wait .*at .*/cq\.c'
shows $second 'main .*at .*/waits\.c'
exec 3>&-
wait $first
wait $second
