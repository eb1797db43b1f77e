package ndcheck

import (
	"fmt"
	"strings"
)

// Severity says how certain a finding is to be a mistake.
type Severity string

const (
	Error   Severity = "error"   // the program is wrong, or its data is undefined
	Warning Severity = "warning" // the program works by luck, or will fail under load
	Note    Severity = "note"    // the program is correct, but slow or not portable
)

// Rule is a kind of mistake. IDs never change their meaning.
type Rule struct {
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Severity Severity `json:"severity"`
	Why      string   `json:"why"` // the effect
	Fix      string   `json:"fix"` // the change that repairs it
}

// The rules, in the order of their IDs.
var (
	tokenInvalidated = rule("N101", Error, "token used after its invalidation",
		"The access fails with an access violation and ends the connection.",
		"take the peer's last result through the token before you invalidate it, or let the peer call SendAndInvalidate")
	outsideRange = rule("N102", Error, "access outside the granted range",
		"The access fails with an access violation and ends the connection.",
		"check address and length against the descriptor of the window, for example with WriteTo or ReadFrom")
	missingRight = rule("N103", Error, "right not granted",
		"The access fails with an access violation and ends the connection.",
		"bind the window with AllowRead, AllowWrite or AllowAtomic, or register the memory with the right")
	swappedToken = rule("N104", Error, "local and remote token swapped",
		"A local token allows requests of its own process only, a remote token those of peers only.",
		"use LocalToken in scatter/gather entries, and pass RemoteToken to peers")
	unknownToken = rule("N105", Error, "token that no process has issued",
		"The access fails with an access violation and ends the connection.",
		"pass the token of the owner unchanged, for example as a WindowDescriptor, and only after the post of the Bind")
	foreignToken = rule("N106", Error, "token of another connection",
		"A window with ThisEndpointOnly is valid on the endpoint that bound it; a local token only on endpoints of its adapter.",
		"use the endpoint that is connected to the window's endpoint, or bind without ThisEndpointOnly")
	revokedInFlight = rule("N107", Warning, "token invalidated while a request used it",
		"The access may have moved a part of its bytes. It fails with an access violation and ends the connection.",
		"wait until the peer says that it has finished, before you invalidate; if you revoke access on purpose, call nd.Expect")
	sourceChanged = rule("N201", Error, "buffer changed while a request sends it",
		"The peer gets the old bytes, the new ones, or a mixture.",
		"take the result of the request before you change its buffer, or post with Inline")
	sinksOverlap = rule("N202", Error, "two requests store into the same bytes",
		"Both requests succeed, and the bytes of one of them are lost.",
		"give each posted Receive and each Read bytes of its own")
	receiveUsed = rule("N203", Error, "buffer of a posted Receive used before its result",
		"The next message may arrive at any time and change the bytes.",
		"take the result of the Receive before you use its buffer")
	readUsed = rule("N204", Error, "data of a Read used before its result",
		"The request may send the bytes from before the Read.",
		"take the result of the Read first, or post the later request with ReadFence")
	outsideRegion = rule("N205", Error, "buffer outside the region of its token",
		"The request fails with an access violation and ends the connection.",
		"make scatter/gather entries with SGEOf, which takes buffer and token from one region")
	conflict = rule("N301", Error, "unordered accesses to the same bytes",
		"The outcome depends on timing: a Read may see half of a Write, and the last Write is not defined.",
		"order the two: take the result of the first and send a message, before the second is posted")
	readBesideWrite = rule("N302", Warning, "Read beside a Write of another endpoint of this process",
		"Requests of two endpoints have no order. The Read may see the bytes from before the Write.",
		"post both on one endpoint, or take the result of the Write before you post the Read")
	neverSynchronised = rule("N303", Note, "data read without a message",
		"The owner of the memory took no result and called no barrier since peers wrote to it. Polling memory works only with InOrderDMASupported.",
		"send a message after the Writes, and read the memory after its Receive has completed")
	overtaken = rule("N304", Warning, "request that a Read before it needs to wait for",
		"softnd executes requests in order. On a card the request may be executed before the Read.",
		"post the later request with ReadFence, or take the result of the Read first")
	writeBesideAtomic = rule("N305", Error, "Write to bytes that atomics change",
		"Atomics are atomic among each other only. The Write may come between the load and the store of an atomic, and is lost then.",
		"change the number by Swap, FetchAndAdd or CompareAndSwap everywhere, or order the Write behind the atomics by a message")
	grantedTwice = rule("N401", Warning, "memory granted to two peers, one of which may write",
		"Nothing orders the accesses of the two peers.",
		"bind windows of different peers to different bytes, or invalidate one before you bind the other")
	closedInUse = rule("N402", Error, "memory closed while a request uses it",
		"The request fails, and the connection ends.",
		"take the results of all requests that use the region before you deregister or close it")
	wholeRegionGranted = rule("N403", Note, "region open to every peer beside its windows",
		"Every peer with the region's remote token has access, although windows limit the access in range and time.",
		"register without AllowRemoteRead and AllowRemoteWrite, and grant access by windows only")
	boundTwice = rule("N404", Error, "window bound twice, or invalidated while it is not bound",
		"The request fails with an invalid device request and ends the connection.",
		"invalidate a bound window before you bind it again, on the endpoint that bound it")
	neverTaken = rule("N501", Warning, "results never taken",
		"The program does not know whether these requests have succeeded, and may have changed their buffers too early.",
		"poll the queue until all results are taken, before you close it")
	overrunAhead = rule("N502", Warning, "completion queue too small for its requests",
		"If the program takes no result for a while, the queue overruns and all its endpoints fail. Hardware has less reserve than softnd.",
		"create the queue with the sum of the depths of its endpoints, or post less")
	noReceive = rule("N503", Error, "Send without a Receive",
		"The Send waits for the receive timeout, fails, and ends the connection.",
		"let the peer post a Receive before it tells this side to send, and post the next before the old one is handled")
	onlySilent = rule("N504", Error, "initiator queue full of silent requests",
		"A request with SilentSuccess leaves the queue when it has run, and has no result. All requests in the queue are silent, so no result can be waited for.",
		"call WaitSlot, or post every n-th request without SilentSuccess, with n less than the depth of the queue")
	neverSubmitted = rule("N505", Error, "deferred requests never submitted",
		"The provider may keep requests with Defer until one without Defer is posted, or WaitSlot waits.",
		"post the last request without Defer")
	failedIgnored = rule("N506", Warning, "posts on a failed endpoint",
		"Every request completes with Canceled, and no data moves.",
		"look at the status of each result, and connect a new endpoint after the first failure")
	tooLong = rule("N507", Error, "message longer than its Receive",
		"The Receive and the Send fail, and the connection ends.",
		"post Receives of the largest message, or send the length first")
	leaked = rule("N601", Note, "objects not closed",
		"Close of the adapter closes them, whatever their peers and the program do with them at that moment.",
		"close the objects before the adapter, endpoints first")
	endpointInUse = rule("N602", Warning, "endpoint closed with requests in flight",
		"The requests are canceled. The program does not know which of them have reached the peer.",
		"take all results, then call Disconnect on both sides, then Close")
	connectCycle = rule("N603", Error, "connects that wait for each other",
		"Each of the ranks waits in Connect or Dial for the next one, and none of them accepts.",
		"accept in another goroutine, or connect in ascending order of the ranks, as ConnectRanks and ConnectAll do")
	uselessFence = rule("N701", Note, "ReadFence on an endpoint without Reads",
		"The flag has no effect. It orders a request behind earlier Reads of the same endpoint only.",
		"remove the flag, or set it on the request that uses the data of the Read")
	slowInline = rule("N702", Note, "Inline above the threshold of the adapter",
		"The extra copy costs more than it saves.",
		"post without Inline above AdapterInfo.InlineRequestThreshold")
	waitForSilence = rule("N703", Warning, "wait for results that cannot come",
		"All requests of the queue are silent and no Receive is posted, so only an error ends the wait.",
		"post the last request without SilentSuccess, or a Receive, before you wait")
	beyondHardware = rule("N801", Note, "limits that common cards do not have",
		"The program runs on softnd, and fails to create its objects on a card.",
		"stay within the limits that the finding names, or take them from Adapter.Query")
	registrationChurn = rule("N802", Note, "memory registered for one request, again and again",
		"On a card a registration takes much longer than a short transfer.",
		"register the memory once, and bind windows or reuse the region")
	silentSurplus = rule("N803", Note, "more silent requests than the queue holds",
		"softnd frees the place of a silent request when it has executed it. A card frees it when the program takes the result of a later request.",
		"post every n-th request without SilentSuccess, with n less than InitiatorDepth, and take its result")
	expectedInVain = rule("N901", Note, "expected finding that did not occur",
		"The program calls Expect for a rule that it does not break, or for the wrong object.",
		"remove the call of Expect, or make it earlier, in the rank that breaks the rule, for the object that the finding names")
	sightLost = rule("N902", Note, "more requests in flight than the checker can watch",
		"The checker may miss findings of N201, N301 and N302.",
		"check the program with fewer ranks or smaller queues, or take the results of requests earlier")
)

var rules []*Rule

func rule(id string, s Severity, title, why, fix string) *Rule {
	r := &Rule{ID: id, Title: title, Severity: s, Why: why, Fix: fix}
	rules = append(rules, r)
	return r
}

// Rules returns all rules in the order of their IDs.
func Rules() []*Rule { return append([]*Rule(nil), rules...) }

// ParseRules returns the rules of a list of identifiers with commas between them.
func ParseRules(list string) (selected []*Rule, err error) {
	for id := range strings.SplitSeq(list, ",") {
		r := byID(id)
		if r == nil {
			return nil, fmt.Errorf("no rule has the identifier %q: want identifiers such as N303, with commas between them", id)
		}
		selected = append(selected, r)
	}
	return selected, nil
}

// byID returns a rule, nil if there is none.
func byID(id string) *Rule {
	for _, r := range rules {
		if r.ID == id {
			return r
		}
	}
	return nil
}
