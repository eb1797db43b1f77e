module example.com/outside

go 1.26.0

require github.com/softnd/softnd v0.0.0

replace github.com/softnd/softnd => ../../../..
