package ndtest

// Untestable lists the rows of the conformance table that no program can check through package nd, each
// with the reason.
var Untestable = map[string]string{
	"C170": "in version 1 of the model, a window yields a result of its own when a peer invalidates it. Package nd, like NDK, reports the invalidated token in the result of the Receive, which C147 checks",
	"C229": "the row passes private data with a length but without memory. In Go, private data is a slice, which cannot have a length without memory. C085 to C087 check the other invalid argument, data that is too long",
}
