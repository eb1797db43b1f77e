module github.com/softnd/softnd/relay

go 1.26.0

require (
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/softnd/softnd v0.0.0-00010101000000-000000000000
	golang.org/x/sys v0.49.0
)

require github.com/edsrzf/mmap-go v1.2.0 // indirect

replace github.com/softnd/softnd => ../
