#!/bin/sh
# mpi.sh COMPILER LAUNCHER SOURCE LIBRARY FOLDER: a program with MPI and softnd, in both orders.
set -eu
compiler=$1 launcher=$2 source=$3 library=$4 folder=$5
mkdir -p "$folder"
"$compiler" -std=c11 -O2 -Wall -Wextra -D_GNU_SOURCE -I"$source/include" -I"$source/tests" "$source/tests/guest/mpi.c" "$library" -pthread -o "$folder/mpi"
case $launcher in
*openmpi) options='--allow-run-as-root --oversubscribe' ;;
*) options= ;;
esac
for order in mpi softnd; do
	timeout 300 "$launcher" $options -n 2 "$folder/mpi" $order </dev/null
	timeout 300 "$launcher" $options -n 2 "$folder/mpi" $order "mpi.$order.$$" </dev/null
done
