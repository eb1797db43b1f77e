// Package litmus has the litmus tests of one-sided communication. Initiators A and B have two endpoints each, all connected with
// target C, whose memory holds the locations x, y and z. Every outcome that the model allows must occur with some seed of a weak
// order, and no other outcome with any.
package litmus

import (
	"fmt"

	"github.com/softnd/softnd/nd"
)

// act is an action of one initiator.
type act struct {
	does     action
	endpoint int
	location int
	value    byte
	flags    nd.OpFlags
	wait     bool // for the results of all earlier requests, before the action
	long     bool // of wordsOfLong words, each with the value
}

type action int

const (
	writes    action = iota
	writesImm        // WriteImmediate. Its receipt lets C look at its memory, as those of sends and sendsImm do
	sends            // a message without bytes
	sendsImm         // SendImmediate without bytes
	reads            // this and the next store what was there before
	adds             // FetchAndAdd of value
	swaps            // Swap for value
	takes            // CompareAndSwap of 0 for value
)

func (a action) brings() bool       { return a >= reads }
func (a action) takesReceive() bool { return a >= writesImm && a <= sendsImm }

func write(location int, value byte) act { return act{location: location, value: value} }
func read(location int) act              { return act{does: reads, location: location} }
func add(location int, value byte) act   { return act{does: adds, location: location, value: value} }
func swap(location int, value byte) act  { return act{does: swaps, location: location, value: value} }
func take(location int, value byte) act  { return act{does: takes, location: location, value: value} }

func (a act) on(endpoint int) act { a.endpoint = endpoint; return a }
func (a act) fenced() act         { a.flags |= nd.ReadFence; return a }
func (a act) waiting() act        { a.wait = true; return a }

const (
	x, y, z     = 0, 1, 2
	wordsOfLong = 16
	spacing     = 256 // bytes between two locations
)

// Test is one test. Its outcome begins with the values that Reads and atomics have returned. Then follow what C has seen, the final
// values of the locations in final, and, if results is set, the order of results.
type Test struct {
	name     string
	initiate [2][]act
	observe  func(at func(location, word int) byte) string // what C sees; "" = not yet
	final    []int
	results  bool   // "r" is that of the message
	counted  bool   // how many results there are when C sees something
	early    bool   // look at the sink of the only Read right after its post
	allowed  string // outcomes
}

// seesInOrder lets C poll until second is set, and then look at first.
func seesInOrder(first, firstWord, second, secondWord int) func(func(int, int) byte) string {
	return func(at func(int, int) byte) string {
		if at(second, secondWord) == 0 {
			return ""
		}
		return fmt.Sprint(at(first, firstWord))
	}
}

// Tests are all tests. The reasons for the outcomes are the rules of docs/weak-order.md, "What stays ordered". No rule orders two endpoints.
var Tests = []Test{
	// A Read sees all earlier Writes of its endpoint. So the Read that runs last sees the Write of the other initiator.
	// Between two endpoints, only a result orders: it comes after the effect.
	{name: "store buffering", allowed: "01 10 11",
		initiate: [2][]act{{write(x, 1), read(y)}, {write(y, 1), read(x)}}},
	{name: "store buffering, fence", allowed: "01 10 11",
		initiate: [2][]act{{write(x, 1), read(y).fenced()}, {write(y, 1), read(x).fenced()}}},
	{name: "store buffering, completion", allowed: "01 10 11",
		initiate: [2][]act{{write(x, 1), read(y).waiting()}, {write(y, 1), read(x).waiting()}}},
	{name: "store buffering, two endpoints", allowed: "00 01 10 11",
		initiate: [2][]act{{write(x, 1), read(y).on(1)}, {write(y, 1), read(x).on(1)}}},
	{name: "store buffering, two endpoints, fence", allowed: "00 01 10 11", // a fence is about Reads of its endpoint
		initiate: [2][]act{{write(x, 1), read(y).on(1).fenced()}, {write(y, 1), read(x).on(1).fenced()}}},
	{name: "store buffering, two endpoints, completion", allowed: "01 10 11",
		initiate: [2][]act{{write(x, 1), read(y).on(1).waiting()}, {write(y, 1), read(x).on(1).waiting()}}},

	// Writes of an endpoint appear in order, so 1 and then 0 needs Reads in the other order. A fence or a result prevents that.
	{name: "message passing", allowed: "00 01 10 11", // y, then x
		initiate: [2][]act{{write(x, 1), write(y, 1)}, {read(y), read(x)}}},
	{name: "message passing, fence", allowed: "00 01 11",
		initiate: [2][]act{{write(x, 1), write(y, 1)}, {read(y), read(x).fenced()}}},
	{name: "message passing, completion", allowed: "00 01 11",
		initiate: [2][]act{{write(x, 1), write(y, 1)}, {read(y), read(x).waiting()}}},
	{name: "message passing, two endpoints, fence", allowed: "00 01 10 11",
		initiate: [2][]act{{write(x, 1), write(y, 1).on(1)}, {read(y), read(x).fenced()}}},
	{name: "message passing, two endpoints, completion", allowed: "00 01 11",
		initiate: [2][]act{{write(x, 1), write(y, 1).on(1).waiting()}, {read(y), read(x).waiting()}}},
	{name: "message passing, polled", allowed: "1",
		initiate: [2][]act{{write(x, 1), write(y, 1)}}, observe: seesInOrder(x, 0, y, 0)},
	{name: "message passing, polled, two endpoints", allowed: "0 1",
		initiate: [2][]act{{write(x, 1), write(y, 1).on(1)}}, observe: seesInOrder(x, 0, y, 0)},
	{name: "message passing, polled, two endpoints, completion", allowed: "1",
		initiate: [2][]act{{write(x, 1), write(y, 1).on(1).waiting()}}, observe: seesInOrder(x, 0, y, 0)},

	// Later Writes may overtake a Read, unless they have a fence or wait for its result.
	{name: "load buffering", allowed: "00 01 10 11",
		initiate: [2][]act{{read(x), write(y, 1)}, {read(y), write(x, 1)}}},
	{name: "load buffering, fence", allowed: "00 01 10",
		initiate: [2][]act{{read(x), write(y, 1).fenced()}, {read(y), write(x, 1).fenced()}}},
	{name: "load buffering, completion", allowed: "00 01 10",
		initiate: [2][]act{{read(x), write(y, 1).waiting()}, {read(y), write(x, 1).waiting()}}},

	{name: "own Write, then Read", allowed: "1", initiate: [2][]act{{write(x, 1), read(x)}}},
	{name: "own Read, then Write", allowed: "0 1", initiate: [2][]act{{read(x), write(x, 1)}}},
	{name: "own Read, then Write, fence", allowed: "0", initiate: [2][]act{{read(x), write(x, 1).fenced()}}},
	{name: "own Read, then Write, completion", allowed: "0", initiate: [2][]act{{read(x), write(x, 1).waiting()}}},
	{name: "two Writes", allowed: "2", final: []int{x}, initiate: [2][]act{{write(x, 1), write(x, 2)}}},
	{name: "two Writes, two endpoints", allowed: "1 2", final: []int{x}, initiate: [2][]act{{write(x, 1), write(x, 2).on(1)}}},
	{name: "two Writes, two endpoints, completion", allowed: "2", final: []int{x}, initiate: [2][]act{{write(x, 1), write(x, 2).on(1).waiting()}}},

	// The bytes of a transfer have no order. All of them come before the result, and before a later message has a result.
	{name: "last word of a Write", allowed: "0 1",
		initiate: [2][]act{{{location: x, value: 1, long: true}}}, observe: seesInOrder(x, 0, x, wordsOfLong-1)},
	{name: "first word of a Write", allowed: "0 1",
		initiate: [2][]act{{{location: x, value: 1, long: true}}}, observe: seesInOrder(x, wordsOfLong-1, x, 0)},
	{name: "a Write, then a message", allowed: "1",
		initiate: [2][]act{{{location: x, value: 1, long: true}, {does: sends}}}, observe: nil},
	{name: "sink of a Read, before its result", allowed: "0 1", early: true,
		initiate: [2][]act{{write(x, 1), read(x).waiting()}}},
	{name: "a Write, and then its result", allowed: "10 11", counted: true,
		initiate: [2][]act{{write(x, 1)}}, observe: seesInOrder(x, 0, x, 0)},
	// Results of one queue are in the order of posting. There is no order between queues.
	{name: "results of a Send and its Receive", allowed: "00r 0r0", results: true, initiate: [2][]act{{{does: sends}}}},
	{name: "results of one endpoint", allowed: "01", results: true, initiate: [2][]act{{write(x, 1), write(y, 1)}}},
	{name: "results of a Read and a Write", allowed: "001", results: true, initiate: [2][]act{{read(x), write(y, 1)}}},
	{name: "results of two endpoints", allowed: "01 10", results: true, initiate: [2][]act{{write(x, 1), write(y, 1).on(1)}}},

	// Atomics of all endpoints are atomic with each other.
	{name: "two additions", allowed: "012 102", final: []int{x}, initiate: [2][]act{{add(x, 1)}, {add(x, 1)}}},
	{name: "two swaps", allowed: "012 201", final: []int{x}, initiate: [2][]act{{swap(x, 1)}, {swap(x, 2)}}},
	{name: "two that take", allowed: "011 202", final: []int{x}, initiate: [2][]act{{take(x, 1)}, {take(x, 2)}}},
	{name: "two additions, two endpoints", allowed: "013 203", final: []int{x}, initiate: [2][]act{{add(x, 1), add(x, 2).on(1)}}},
	// The effect of an atomic appears in the order of posting, among Writes and atomics. It may overtake Reads, as a Write may.
	{name: "own Write, then atomic", allowed: "13", final: []int{x}, initiate: [2][]act{{write(x, 1), add(x, 2)}}},
	{name: "own atomic, then Write", allowed: "05", final: []int{x}, initiate: [2][]act{{add(x, 1), write(x, 5)}}},
	{name: "own atomics", allowed: "0134", final: []int{x}, initiate: [2][]act{{add(x, 1), swap(x, 3), add(x, 1)}}},
	{name: "own Read, then atomic", allowed: "001 101", final: []int{x}, initiate: [2][]act{{read(x), add(x, 1)}}},
	{name: "own Read, then atomic, fence", allowed: "001", final: []int{x}, initiate: [2][]act{{read(x), add(x, 1).fenced()}}},
	{name: "own atomic, then Read", allowed: "01", initiate: [2][]act{{add(x, 1), read(x)}}},
	{name: "message passing, atomics", allowed: "00 01 11", initiate: [2][]act{{write(x, 1), write(y, 1)}, {add(y, 0), add(x, 0)}}},
	{name: "message passing, polled, Write and atomic", allowed: "01", initiate: [2][]act{{write(x, 1), add(y, 1)}}, observe: seesInOrder(x, 0, y, 0)},
	{name: "message passing, polled, atomic and Write", allowed: "01", initiate: [2][]act{{add(x, 1), write(y, 1)}}, observe: seesInOrder(x, 0, y, 0)},
	{name: "message passing, polled, atomics of two endpoints", allowed: "000 001", initiate: [2][]act{{add(x, 1), add(y, 1).on(1)}}, observe: seesInOrder(x, 0, y, 0)},
	{name: "store buffering, atomics", allowed: "0001 0100 0101", initiate: [2][]act{{add(x, 1), add(y, 0)}, {add(y, 1), add(x, 0)}}},
	{name: "store buffering, atomics of two endpoints", allowed: "0000 0001 0100 0101", initiate: [2][]act{{add(x, 1), add(y, 0).on(1)}, {add(y, 1), add(x, 0).on(1)}}},
	{name: "results of an atomic and a Write", allowed: "001", results: true, initiate: [2][]act{{add(x, 1), write(y, 1)}}},

	// A number arrives when all earlier effects of its endpoint, and the bytes of its own Write, can be seen.
	{name: "WriteImmediate", allowed: "1", initiate: [2][]act{{{does: writesImm, location: x, value: 1, long: true}}}},
	{name: "a Write, then SendImmediate", allowed: "1", initiate: [2][]act{{{location: x, value: 1, long: true}, {does: sendsImm}}}},
	{name: "a Write, then WriteImmediate", allowed: "1", initiate: [2][]act{{{location: x, value: 1, long: true}, {does: writesImm, location: y, value: 1}}}},
	{name: "an atomic, then WriteImmediate", allowed: "01", initiate: [2][]act{{{does: adds, location: x, value: 1}, {does: writesImm, location: y, value: 1}}}},
	{name: "a Write of another endpoint, then SendImmediate", allowed: "0 1", initiate: [2][]act{{{location: x, value: 1, long: true, endpoint: 1}, {does: sendsImm}}}},
	{name: "results of a WriteImmediate and its Receive", allowed: "10r 1r0", results: true, initiate: [2][]act{{{does: writesImm, location: x, value: 1, long: true}}}},
}
