package ndtest

// Adapted lists the rows of the conformance table whose property has no direct form in Go. The text
// of a row gives the property, the reason, and the check that replaces it. These rows pass or fail like
// others.
var Adapted = map[string]string{
	"C001": "the row asks for the buffer size that the address list needs. In Go, the call returns a slice, so there is no size. Check: the list is not empty, and the library and the provider return the same list",
	"C002": "the row repeats the call with a buffer of the size from C001. In Go, the call allocates the slice. Check: the slice belongs to the caller, so that a change of it changes no later list",
	"C007": "the row requires all 22 fields to be set. 0 is a valid value of six: VendorID and DeviceID without a vendor, and MaxInlineDataSize, InlineRequestThreshold, MaxSharedReceiveQueueDepth and AdapterFlags without the feature. Check: the other 16, which are the version, the adapter's ID, and 14 limits with a minimum",
	"C035": "the row requires object counts of zero at the end. Package nd counts no objects. Check: each address that was in use can be bound again, and a new connection works",
	"C045": "the row requires the completion of Accept before that of the first Receive. In Go, Accept is a call that blocks until it completes, so a program cannot see the two in the wrong order. Check: Accept returns although no call polls for the message, and the message is in the queue after that",
	"C124": "the row requires each pending operation to report in event mode or to an event queue, and not to both. In Go, a call reports by its return. Check: a call returns once, and the values that it returns are true even if its context ends at the same time",
	"C204": "the row calls with no buffer, a short one and a long one. In Go, the call returns the structure or the slice. Check: both versions of the structure are known and no others, and the lists belong to the caller",
}
