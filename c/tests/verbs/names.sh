#!/bin/sh
# Each name that a library of the system exports has the same version in ours, and the system's libraries of cards, which import
# private names, load. Second versions of names, for programs from before 2007, are left out. names.sh OURS SYSTEM, two folders
set -eu
fail() { echo "$*"; exit 1; }
names() { nm -D --defined-only --with-symbol-versions "$1" | awk '$2 != "A" && $3 !~ /[^@]@IBVERBS_1\.0$/ { sub(/@@/, "@", $3); print $3 }' | sort; }
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
for library in libibverbs.so.1 librdmacm.so.1; do
	names "$2/$library" >"$work/theirs"
	nm -D --defined-only --with-symbol-versions "$1/$library" | awk '{ sub(/@@/, "@", $3); print $3 }' | sort >"$work/ours"
	count=$(wc -l <"$work/theirs")
	test "$count" -ge 68 || fail "$2/$library: only $count names"
	missing=$(comm -23 "$work/theirs" "$work/ours")
	test -z "$missing" || fail "$library lacks" $missing
	echo "$library has the $count names of the system's"
done
if [ "${3:-}" != load ]; then # the loader cannot load ours, or theirs are not for this system
	exit
fi
for library in libmlx5.so.1 libmlx4.so.1 libefa.so.1; do
	test -e "$2/$library" || { echo "skipped: $library is not installed" && continue; }
	errors=$(env LD_LIBRARY_PATH=$1 LD_BIND_NOW=1 LD_PRELOAD=$2/$library true 2>&1) || :
	test -z "$errors" || fail "$library does not load: $errors"
	env LD_LIBRARY_PATH=$1 LD_TRACE_LOADED_OBJECTS=1 LD_PRELOAD=$2/$library true | grep -q "libibverbs.so.1 => $1/" || fail "$library loads another libibverbs"
	echo "$library loads"
done
