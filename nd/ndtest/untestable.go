package ndtest

// Untestable lists the rows of the conformance table that no program written against package nd
// can check, with the reason.
var Untestable = map[string]string{
	"C170": "only version 1 of the model has a result of the window's own; package nd, like NDK, tells of the invalidated token in the Receive's result instead, which C147 checks",
	"C229": "private data is a Go slice, which cannot claim a length without having the memory; data that is too long, the other bad argument, is in C085 to C087",
}
