package faults

import (
	"maps"
	"slices"

	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/nd"
)

var operations = map[string]faultplan.Operation{
	"send":                    faultplan.Send,
	"send-and-invalidate":     faultplan.SendAndInvalidate,
	"receive":                 faultplan.Receive,
	"read":                    faultplan.Read,
	"write":                   faultplan.Write,
	"atomic":                  faultplan.Atomic,
	"bind":                    faultplan.Bind,
	"invalidate":              faultplan.Invalidate,
	"invalidate-region":       faultplan.InvalidateRegion,
	"fast-register":           faultplan.FastRegister,
	"connect":                 faultplan.Connect,
	"complete-connect":        faultplan.CompleteConnect,
	"accept":                  faultplan.Accept,
	"disconnect":              faultplan.Disconnect,
	"listen":                  faultplan.Listen,
	"connection-request":      faultplan.ConnectionRequest,
	"notify":                  faultplan.Notify,
	"allocate":                faultplan.Allocate,
	"register":                faultplan.Register,
	"create-window":           faultplan.CreateWindow,
	"create-completion-queue": faultplan.CreateQueue,
	"create-endpoint":         faultplan.CreateEndpoint,
}

var phases = map[string]faultplan.Phase{
	"post":     faultplan.Post,
	"execute":  faultplan.Execute,
	"complete": faultplan.Complete,
}

var actions = map[string]faultplan.Action{
	"fail":       faultplan.Fail,
	"delay":      faultplan.Delay,
	"corrupt":    faultplan.Corrupt,
	"stop":       faultplan.Stop,
	"kill":       faultplan.Kill,
	"drop":       faultplan.Drop,
	"invalidate": faultplan.InvalidateNow,
	"overrun":    faultplan.Overrun,
	"refuse":     faultplan.Refuse,
	"exhaust":    faultplan.Exhaust,
}

// words returns the words of a table in alphabetical order.
func words[V any](table map[string]V) []string { return slices.Sorted(maps.Keys(table)) }

// only lists the operations that an action is limited to, for each action that is.
var only = map[faultplan.Action]uint64{
	faultplan.Corrupt:       set("send", "send-and-invalidate", "receive", "read", "write", "atomic"),
	faultplan.Drop:          requests,
	faultplan.InvalidateNow: set("read", "write", "atomic"),
	faultplan.Overrun:       requests,
	faultplan.Refuse:        set("connect", "connection-request"),
	faultplan.Exhaust:       set("connect", "allocate", "register", "create-window", "create-completion-queue", "create-endpoint"),
}

// transfers are the operations that have a number of bytes. Those of inParts may copy their bytes in parts.
// onWindows, toPeer and onEndpoint are the operations that have a window or a remote token, a peer, or an endpoint.
var (
	requests   = faultplan.Connect.Set() - 1
	transfers  = set("send", "send-and-invalidate", "receive", "read", "write", "atomic", "allocate", "register")
	inParts    = set("send", "send-and-invalidate", "read", "write")
	onWindows  = set("send-and-invalidate", "read", "write", "atomic", "bind", "invalidate")
	toPeer     = requests | set("connect", "complete-connect", "accept", "disconnect", "connection-request")
	onEndpoint = requests | set("connect", "complete-connect", "accept", "disconnect", "create-endpoint")
)

func set(names ...string) (s uint64) {
	for _, name := range names {
		s |= operations[name].Set()
	}
	return s
}

// wordsOf returns the words of the operations in a set.
func wordsOf(s uint64) (names []string) {
	for _, name := range words(operations) {
		if s&operations[name].Set() != 0 {
			names = append(names, name)
		}
	}
	return names
}

// resultStatuses lists the failures that the result of a request may have, according to [nd.Endpoint].
// A test compares it with the comments there.
var resultStatuses = map[faultplan.Operation][]nd.Status{
	faultplan.Send:              {nd.IOTimeout, nd.RemoteError, nd.AccessViolation, nd.DataOverrun, nd.DataChecksumError},
	faultplan.SendAndInvalidate: {nd.IOTimeout, nd.RemoteError, nd.AccessViolation, nd.DataOverrun, nd.DataChecksumError},
	faultplan.Receive:           {nd.BufferOverflow, nd.AccessViolation, nd.IOTimeout, nd.RemoteError, nd.DataChecksumError},
	faultplan.Read:              {nd.AccessViolation, nd.DataOverrun, nd.IOTimeout, nd.RemoteError, nd.DataChecksumError},
	faultplan.Write:             {nd.AccessViolation, nd.DataOverrun, nd.IOTimeout, nd.RemoteError, nd.DataChecksumError},
	faultplan.Atomic:            {nd.AccessViolation, nd.DataOverrun, nd.IOTimeout, nd.RemoteError},
}

// everyResult lists the failures that the result of any request may have.
var everyResult = []nd.Status{nd.Canceled, nd.InvalidDeviceRequest, nd.InternalError}

// isResult reports whether the result of a request may have a status.
func isResult(o faultplan.Operation, s nd.Status) bool {
	// DataError is in no comment of Endpoint: the constant's own comment says that hardware reports it for a Send.
	return slices.Contains(everyResult, s) || slices.Contains(resultStatuses[o], s) ||
		s == nd.DataError && (o == faultplan.Send || o == faultplan.SendAndInvalidate)
}
