/* deny NAME,... PROGRAM ARGUMENT...: runs a program under a seccomp filter that refuses system calls. */
#include <stdio.h>
#include <unistd.h>

#include "deny.h"

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	if (!deny(argv[1])) {
		perror("deny");
		return 2;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
