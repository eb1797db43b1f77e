module github.com/softnd/softnd/tools

go 1.26.0

replace github.com/softnd/softnd => ../

require (
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/softnd/softnd v0.0.0-00010101000000-000000000000
)

require (
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.28.0 // indirect
)
