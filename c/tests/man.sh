#!/bin/sh
# Each call and each struct of the header has a page, whose summary is a sentence about it. The page of a call that returns a status
# lists the statuses, which the header defines. If mandoc is there, it finds no
# fault in the pages. man.sh HEADER DIRECTORY
set -eu
header=$1
cd "$2"
fail() { echo "$*"; exit 1; }
count=0
for call in $(sed -n 's/^SND_API[^(]*[ *]\(snd_[a-z_]*\)(.*/\1/p' "$header"); do
	grep -q "^\.B \".*[ *]$call(" "$call.3" || fail "$call has no page with its prototype"
	grep -A1 '^\.SH NAME' "$call.3" | grep -qE "^$call \\\\- [a-z]+ " || fail "$call has no summary: begin its comment with \"$call\" and a verb"
	grep -q "^\.BR $call (3)" softnd.3 || fail "softnd.3 does not list $call"
	count=$((count + 1))
done
test "$count" -gt 80
for call in $(sed -n 's/^SND_API snd_status \(snd_[a-z_]*\)(.*/\1/p' "$header"); do
	grep -q '^\.B SND_[A-Z_]*$' "$call.3" || fail "c/man/statuses lists no status of $call"
done
for status in $(sed -n 's/^\.B \(SND_[A-Z_]*\)$/\1/p' ./snd_*.3 | sort -u); do
	grep -q "^#define $status " "$header" || fail "c/man/statuses lists $status, which is not in the header"
done
for type in $(sed -n 's/^typedef struct \(snd_[a-z_]*\) {/\1/p' "$header"); do
	grep -q "^typedef struct $type {" softnd.3 || fail "softnd.3 does not define $type"
	grep -qx '\.so man3/softnd\.3' "$type.3" || fail "$type has no page"
done
for constant in $(sed -n 's/^#define \(SND_[A-Z_]*\) .*[0-9].*/\1/p' "$header"); do
	grep -q "^#define $constant " softnd.3 || fail "softnd.3 does not define $constant"
done
if command -v mandoc >/dev/null; then
	grep -L '^\.so' ./*.3 | xargs mandoc -Tlint
else
	echo 'skipped: mandoc is not installed'
fi
