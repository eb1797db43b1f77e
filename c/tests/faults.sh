#!/bin/sh
# A fault plan does the same to ranks in Go and in C: faults.sh NDRUN GORANK FILE PROGRAM OTHER. PROGRAM and OTHER are builds of faulty.c.
# Each plan of FILE is run with two ranks in Go, with one in Go and one of PROGRAM, and with two of OTHER. All rules have to act, and
# outputs and reports have to be equal.
set -eu
ndrun=$1 gorank=$2 plans=$3 program=$4 other=$5
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# run_job NAME ARGUMENT...: runs a job with the plan, and keeps what it printed, sorted by rank, and what ndrun says about the rules.
run_job() {
	name=$1
	shift
	if ! timeout --foreground 300 "$ndrun" --no-label --faults "$dir/plan.yaml" --faults-seed 7 "$@" >"$dir/out" 2>"$dir/$name.report"; then
		echo "$name: failed with the plan"
		cat "$dir/plan.yaml" "$dir/$name.report"
		exit 1
	fi
	sort -s -k1,1 "$dir/out" >"$dir/$name"
}

# same NAME: compares a run with that in Go.
same() {
	if ! diff "$dir/go" "$dir/$1" || ! diff "$dir/go.report" "$dir/$1.report"; then
		echo "$1: ranks in Go (<) and in C (>) differ with the plan"
		cat "$dir/plan.yaml"
		exit 1
	fi
}

awk '/^[0-9]/ { if (plan) print plan; plan = $0 } /^ / { plan = plan $0 } END { print plan }' "$plans" >"$dir/plans"
count=0
while read -r rounds rules; do
	printf 'rules: %s\n' "$rules" | sed 's/{operation/{rank: 1, operation/g' >"$dir/plan.yaml"
	run_job go -n 2 "$gorank" faulty "$rounds" </dev/null
	run_job mixed -n 1 "$gorank" faulty "$rounds" : -n 1 "$program" "$rounds" </dev/null
	same mixed
	run_job c -n 2 "$other" "$rounds" </dev/null
	same c
	count=$((count + 1))
done <"$dir/plans"
[ "$count" -gt 0 ]
echo "$count fault plans do the same to ranks in Go and in C"
