package ndtest

// Adapted lists the rows of the conformance table whose property has no direct form in Go. The text of
// a row gives the property, the reason, and the check that the suite makes instead. Like other rows,
// these rows pass or fail.
var Adapted = map[string]string{
	"C001": "the row requires the call to report the buffer size that the address list needs. In Go, the call returns a slice, so there is no size to report. Check: the list is not empty, and the library and the provider return the same list",
	"C002": "the row repeats the call with a buffer of the size from C001. In Go, the call allocates the slice. Check: if the caller changes the slice, lists that later calls return are not changed",
	"C007": "the row requires all 22 fields to be set. Six fields may be 0: VendorID and DeviceID if there is no vendor, and MaxInlineDataSize, InlineRequestThreshold, MaxSharedReceiveQueueDepth and AdapterFlags if the adapter lacks the feature. Check: the other 16 fields are set; they are the version of ndcompat.Query, the adapter's ID, and 14 limits that have a minimum",
	"C035": "the row requires object counts of zero at the end. Package nd counts no objects. Check: each address that was in use can be bound again, and a new connection works",
	"C045": "the row requires the completion of Accept before that of the first Receive. In Go, Accept is a call that blocks until it completes, so a program cannot see the two in the wrong order. Check: Accept returns although no call polls for the message, and the message is in the queue after that",
	"C124": "the row requires a pending operation to report its end either as an event or in an event queue, but not in both. In Go, a call reports its end by returning. Check: the values that a call returns are correct, even if its context ends at the same time",
	"C204": "the row makes the call without a buffer, with a short buffer and with a long buffer. In Go, the call returns the structure or the slice. Check: ndcompat.Query accepts both versions of the structure and no others, and the caller may change the lists",
}
