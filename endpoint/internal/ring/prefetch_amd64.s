#include "textflag.h"

// func prefetchWrite(w *atomic.Uint64)
TEXT ·prefetchWrite(SB), NOSPLIT, $0-8
	MOVQ w+0(FP), AX
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08 // PREFETCHW (AX), which the assembler does not know
	RET

// func prefetchRead(w *atomic.Uint64)
TEXT ·prefetchRead(SB), NOSPLIT, $0-8
	MOVQ w+0(FP), AX
	PREFETCHT0 (AX)
	RET

// func cpuVendor() (name [3]uint32)
TEXT ·cpuVendor(SB), NOSPLIT, $0-12
	XORL AX, AX
	CPUID
	MOVL BX, name_0+0(FP)
	MOVL DX, name_1+4(FP)
	MOVL CX, name_2+8(FP)
	RET
