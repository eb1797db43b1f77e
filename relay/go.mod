module github.com/softnd/softnd/relay

go 1.26.0

require golang.org/x/sys v0.49.0

replace github.com/softnd/softnd => ../
