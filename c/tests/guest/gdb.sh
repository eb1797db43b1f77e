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
for pid in $first $second; do
	gdb -nx -batch -iex 'set debuginfod enabled off' -ex 'thread apply all backtrace' -p $pid >"$dir/stacks" 2>"$dir/errors" </dev/null || { cat "$dir/errors"; exit 1; }
	if [ $pid = $first ]; then want='snd_cq_wait .*at .*/cq\.c'; else want='main .*at .*/waits\.c'; fi
	for text in '"softnd"' '"softnd-watch"' "$want"; do
		grep -q "$text" "$dir/stacks" || { cat "$dir/stacks"; echo "no $text"; exit 1; }
	done
done
exec 3>&-
wait $first
wait $second
