/* Private names of libibverbs.so.1: the system's libraries of cards import them, each in the version node of its release. */
#ifndef SOFTND_VERBS_PRIVATE_H
#define SOFTND_VERBS_PRIVATE_H

#include "private_nodes.h"

/* PRIVATE exports a function of this file under a name, in the version node with a number. */
#define PRIVATE(name, function, node)                                                                                               \
	extern __typeof__(function) private_##name##_##node __attribute__((alias(#function)));                     \
	__asm__(".symver private_" #name "_" #node ", " #name "@IBVERBS_PRIVATE_" #node);

#endif
