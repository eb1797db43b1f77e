#!/bin/sh
# Every call of the header has a page or a link whose target names it. man.sh HEADER DIRECTORY
set -eu
count=0
for call in $(sed -n 's/^SND_API[^(]*[ *]\(snd_[a-z_]*\)(.*/\1/p' "$1"); do
	page=$(sed -n 's/^\.so man3\///p' "$2/$call.3")
	grep -q "^\.B \".*[ *]$call(" "$2/${page:-$call.3}" || { echo "$call has no page"; exit 1; }
	count=$((count + 1))
done
test "$count" -gt 80
