package ndtest

// Adapted lists the rows of the conformance table that ask for something that Go says in another
// way, with what is checked in its place and why. They count as rows that pass or fail.
var Adapted = map[string]string{
	"C001": "the row asks how large a buffer the address list needs. A list is a slice that the call returns, so there is no size to ask for: it must not be empty, and the library's must be the provider's",
	"C002": "the row asks again with a buffer of the size that C001 told. The call makes the slice itself: it must be the caller's own, so that a change to it changes no later list",
	"C007": "the row wants all 22 fields set. 16 can be told from unset ones: the two that the call gives away, and 14 limits with a least value. VendorID and DeviceID are 0 where there is no vendor, and MaxInlineDataSize, InlineRequestThreshold, MaxSharedReceiveQueueDepth and AdapterFlags are 0 where the adapter lacks the feature",
	"C035": "the row wants object counts of zero at the end. Package nd counts no objects: every address that was in use must be free to bind again, and a new pair must work",
	"C045": "the row wants the completion of Accept before that of the first Receive. Accept is a call that returns, so a program cannot see the two out of order: Accept must return while nobody polls for the message, which must then be there",
	"C124": "the row wants each pending operation to report in event mode or to an event queue, and not to both. A call reports by returning: it must return once, and what it returns must be true even if its context ends at the same time",
	"C204": "the row asks with no buffer, a short one and a long one. The call returns the structure or the slice itself: both versions must be known and no others, and the lists must be the caller's own",
}
