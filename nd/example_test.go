package nd_test

import (
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
	// nd: deregister on region 4: 1 window is bound to it: device busy; invalidate the window first
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
