/* Calls of names that are not built. They read no argument, so one function serves names with any.
 *
 * A name is an alias of such a function. A private name is in several version nodes, so it has an alias for each of them. */
#ifndef SOFTND_VERBS_STUBS_H
#define SOFTND_VERBS_STUBS_H

#include <errno.h>

#include "private.h"

#define STUB __attribute__((used)) static
#define PUBLIC(name, function) extern __typeof__(function) name __attribute__((alias(#function)));

STUB long stub_errno(void) { return EOPNOTSUPP; }

STUB long stub_minus(void) {
	errno = EOPNOTSUPP;
	return -1;
}

STUB void *stub_null(void) {
	errno = EOPNOTSUPP;
	return 0;
}

STUB long stub_zero(void) {
	errno = EOPNOTSUPP;
	return 0;
}

STUB void stub_nothing(void) {}

#endif
