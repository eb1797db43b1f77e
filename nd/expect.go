package nd

// Expect tells a checker, such as that of package ndcheck, that the program breaks rules on purpose, and why. The
// checker then counts findings of these rules apart, if they are about object. If no such finding occurs until the end, it
// reports that. So an expectation can name several rules if the timing decides which of them is broken.
//
// object is what the adapter has created: an endpoint, a region, a window, a completion queue. An adapter stands for all
// its objects. The process that breaks the rule must call Expect, before it does so. The call is valid until object is
// closed. Without a checker, it does nothing.
func Expect(object any, reason string, rules ...string) {
	type watched interface {
		Expect(object any, reason string, rules ...string)
	}
	if w, ok := object.(watched); ok {
		w.Expect(object, reason, rules...)
	}
}
