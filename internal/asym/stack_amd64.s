//go:build !race

#include "textflag.h"

// The running goroutine's record begins with the two ends of its stack.

// func bounds() (lo, hi uintptr)
TEXT ·bounds(SB), NOSPLIT, $0-16
	MOVQ (TLS), AX
	MOVQ 0(AX), BX
	MOVQ 8(AX), CX
	MOVQ BX, lo+0(FP)
	MOVQ CX, hi+8(FP)
	RET
