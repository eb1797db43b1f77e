#!/bin/sh
# pyverbs' own tests succeed as far as what they need is built, and those for cards are skipped. pyverbs.sh OURS TESTS, a folder
set -eu
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
mkdir "$work/tests"
cp "$2"/* "$work/tests"
gunzip -f "$work"/tests/*.gz
cd "$work"
export LD_LIBRARY_PATH="$1" PYTHONDONTWRITEBYTECODE=1
run() { /usr/bin/python3 tests/run_tests.py -v "$@" >log 2>&1 || { cat log; exit 1; }; }
run tests.test_device tests.test_pd tests.test_addr tests.test_cq tests.test_cqex tests.test_mr
test "$(grep -c ' ok$' log)" -ge 25 || { cat log; exit 1; }
cards=$(cd tests && ls | sed -n 's/^\(test_mlx5.*\|test_efa.*\)\.py$/tests.\1/p')
run $cards
! grep ' ok$' log
grep -E '^OK \(skipped=[0-9]{2,}\)' log
