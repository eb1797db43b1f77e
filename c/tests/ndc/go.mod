module github.com/softnd/softnd/c/tests/ndc

go 1.26.0

require github.com/softnd/softnd v0.0.0

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/edsrzf/mmap-go v1.2.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/softnd/softnd => ../../..
