#!/bin/sh
# Ranks of each language compute one picture with ranks in Go, and alone, each bit as the serial result.
# heat.sh NDRUN GO_HEAT PROGRAM...
set -eu
ndrun=$1 go=$2
shift 2
expect() {
	out=$("$ndrun" "$@") || { echo "$out"; exit 1; }
	case $out in *'identical to the serial result'*) ;; *) echo "$*: $out"; exit 1 ;; esac
}
for program; do
	expect -n 2 "$go" -steps 200 -verify : -n 2 "$program" -steps 200
	expect -n 1 "$program" -steps 101 -verify : -n 2 "$go" -steps 101
	expect -n 1 "$go" -steps 100 -verify : -n 1 "$program" -steps 100 : -n 1 "$go" -steps 100 : -n 1 "$program" -steps 100
	expect -n 3 "$program" -steps 200 -verify
done
