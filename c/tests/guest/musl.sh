#!/bin/sh
# musl.sh SOURCE FOLDER: the library, compiled with musl, as a static and as a shared library, and a test with each.
set -eu
source=$1 folder=$2
rm -rf "$folder"
mkdir -p "$folder/kernel"
cd "$folder"
# musl has no headers of the kernel. Those of the system do not depend on its C library.
ln -s /usr/include/linux /usr/include/asm-generic "/usr/include/$(gcc -print-multiarch)/asm" kernel/
flags="-std=c11 -O1 -Wall -Wextra -Wshadow -Werror -fPIC -fvisibility=hidden -D_GNU_SOURCE -idirafter kernel -I$source/include -I$source/src"
musl-gcc $flags -c "$source/tests/pair.c" -o test.o
mkdir objects
(cd "$source/src" && printf '%s\0' *.c */*.c) |
	xargs -0 -P "$(nproc)" -I{} sh -c 'musl-gcc $1 -DSND_EXPLICIT_SIZES -DSOFTND_VERSION=\"musl\" -c "$2/src/$3" -o "objects/$(echo "$3" | tr / -).o"' sh "$flags" "$source" {}
ar rcs libsoftnd.a objects/*.o
musl-gcc -static test.o libsoftnd.a -pthread -o static
musl-gcc -shared objects/*.o -Wl,--version-script="$source/src/softnd.map" -Wl,-z,defs -Wl,-soname,libsoftnd.so -o libsoftnd.so
musl-gcc test.o -L. -lsoftnd -Wl,-rpath,"$folder" -o shared
for progress in manual auto; do
	TEST_PROGRESS=$progress ./static
	TEST_PROGRESS=$progress TEST_THREADS=safe ./shared
done
