package nd_test

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/softnd/softnd/nd"
)

func ExampleOpError() {
	var err error = &nd.OpError{
		Op: "deregister", Object: "region 4", Status: nd.DeviceBusy,
		Detail: "1 window is bound to it",
		Next:   "invalidate the window first",
	}
	fmt.Println(err)
	fmt.Println(errors.Is(err, nd.DeviceBusy))
	// Output:
	// nd: deregister on region 4: 1 window is bound to it: device busy: invalidate the window first
	// true
}

func ExampleWindowDescriptor() {
	mine := nd.WindowDescriptor{Address: 0x7f0000001000, Length: 4096, Token: 0x00010002}
	message, _ := mine.MarshalBinary() // goes to the peer in a Send

	var theirs nd.WindowDescriptor
	if err := theirs.UnmarshalBinary(message); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(message), theirs == mine, theirs.Token)
	// Output: 20 true token(...02)
}

func ExampleStatus_Failed() {
	fmt.Println(nd.Pending.Failed(), nd.NoMoreEntries.Failed(), nd.AccessViolation.Failed())
	// Output: false true true
}

func ExampleWindowDescriptor_Slice() {
	memory := nd.WindowDescriptor{Address: 0x7f0000001000, Length: 4096, Token: 0x00010002}
	part, err := memory.Slice(1024, 512)
	fmt.Printf("%#x %d %v\n", part.Address, part.Length, err)
	_, err = memory.Slice(4000, 100)
	fmt.Println(err)
	// Output:
	// 0x7f0000001400 512 <nil>
	// nd: slice on window descriptor: not within the memory described (asked 100 bytes at offset 4000, have 4096): access violation: check offset and length
}

func ExampleView() {
	memory := bytes.Repeat([]byte{1}, 32) // in a program, the Bytes of a region
	numbers, err := nd.View[uint32](memory)
	fmt.Printf("%d numbers, the first is %#x, %v\n", len(numbers), numbers[0], err)
	_, err = nd.View[struct{ Name string }](memory)
	fmt.Println(err)
	// Output:
	// 8 numbers, the first is 0x1010101, <nil>
	// nd: view on memory: struct { Name string } has a string: invalid parameter: use a type of numbers only
}
