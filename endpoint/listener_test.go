package endpoint

// Tests on this subject are being written (by the author of pair_test.go).
