package ndcompat

import (
	"errors"

	"github.com/softnd/softnd/nd"
)

// InvalidParameter1 to InvalidParameter10 are the statuses of version 2 for an argument that is not valid. The number is the
// position of the parameter in the C function, not counting the object. Package nd has [nd.InvalidParameter] for all of
// them: see [StatusOf].
const (
	InvalidParameter1  nd.Status = 0xC00000EF
	InvalidParameter2  nd.Status = 0xC00000F0
	InvalidParameter3  nd.Status = 0xC00000F1
	InvalidParameter4  nd.Status = 0xC00000F2
	InvalidParameter5  nd.Status = 0xC00000F3
	InvalidParameter6  nd.Status = 0xC00000F4
	InvalidParameter7  nd.Status = 0xC00000F5
	InvalidParameter8  nd.Status = 0xC00000F6
	InvalidParameter9  nd.Status = 0xC00000F7
	InvalidParameter10 nd.Status = 0xC00000F8
)

// StatusOf returns the status that the call of version 2 or NDK has for err. That is [nd.StatusOf](err), or a numbered
// status if Op and Field of the [nd.OpError] name a parameter of the C function. For an endpoint with a shared receive
// queue, the numbers are those of CreateQueuePair. In CreateQueuePairWithSrq, those from MaxReceiveSGE on are lower by 1.
func StatusOf(err error) nd.Status {
	s := nd.StatusOf(err)
	if op, ok := errors.AsType[*nd.OpError](err); ok && s == nd.InvalidParameter {
		if numbered, ok := numbers[parameter{op.Op, op.Field}]; ok {
			return numbered
		}
	}
	return s
}

type parameter struct{ op, name string }

var numbers = map[parameter]nd.Status{
	{"accept", "ep"}:                             InvalidParameter1,
	{"allocate memory region", "flags"}:          InvalidParameter3,
	{"bind", "flags"}:                            InvalidParameter6,
	{"bind", "mr"}:                               InvalidParameter2,
	{"bind", "mw"}:                               InvalidParameter3,
	{"connect", "ep"}:                            InvalidParameter1,
	{"create completion queue", "depth"}:         InvalidParameter3,
	{"create endpoint", "InitiatorCQ"}:           InvalidParameter3,
	{"create endpoint", "InitiatorDepth"}:        InvalidParameter6,
	{"create endpoint", "InlineSize"}:            InvalidParameter9,
	{"create endpoint", "MaxInitiatorSGE"}:       InvalidParameter8,
	{"create endpoint", "MaxReceiveSGE"}:         InvalidParameter7,
	{"create endpoint", "ReceiveCQ"}:             InvalidParameter2,
	{"create endpoint", "ReceiveDepth"}:          InvalidParameter5,
	{"create endpoint", "SharedReceive"}:         InvalidParameter4,
	{"create shared receive queue", "Depth"}:     InvalidParameter3,
	{"create shared receive queue", "MaxSGE"}:    InvalidParameter4,
	{"create shared receive queue", "Threshold"}: InvalidParameter5,
	{"fast register", "BaseAddress"}:             InvalidParameter7,
	{"fast register", "Length"}:                  InvalidParameter6,
	{"fast register", "Offset"}:                  InvalidParameter5,
	{"fast register", "Pages"}:                   InvalidParameter4,
	{"fast register", "Region"}:                  InvalidParameter2,
	{"fast register", "Rights, flags"}:           InvalidParameter8,
	{"fast register", "len(Pages)"}:              InvalidParameter3,
	{"get connection request", "c"}:              InvalidParameter1,
	{"initialize fast register", "pages"}:        InvalidParameter1,
	{"invalidate", "flags"}:                      InvalidParameter3,
	{"invalidate", "mw"}:                         InvalidParameter2,
	{"invalidate region", "flags"}:               InvalidParameter3,
	{"invalidate region", "mr"}:                  InvalidParameter2,
	{"listen", "backlog"}:                        InvalidParameter1,
	{"notify", "t"}:                              InvalidParameter1,
	{"query address list", "flags"}:              InvalidParameter1,
	{"read", "flags"}:                            InvalidParameter6,
	{"register", "flags"}:                        InvalidParameter3,
	{"send", "flags"}:                            InvalidParameter4,
	{"send and invalidate", "flags"}:             InvalidParameter4,
	{"write", "flags"}:                           InvalidParameter6,
}
