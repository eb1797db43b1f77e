package ndtest

// Untestable lists the rows of the conformance table that no program written against package nd
// can check, with the reason.
var Untestable = map[string]string{}
