package ndtest

// Untestable lists the rows of the conformance table that no program written against package nd
// can check, with the reason.
var Untestable = map[string]string{
	"C229": "private data is a Go slice, which cannot claim a length without having the memory; data that is too long, the other bad argument, is in C085 to C087",
}
