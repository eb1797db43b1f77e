package endpoint

import "github.com/softnd/softnd/nd"

// parameterName returns the name of the parameter or field that a status of op refers to, for
// [nd.OpError].Field, and "" for a status that refers to none. The numbered statuses count the
// parameters of version 2 of the model, so the number alone does not name one of the Go method.
func parameterName(op string, s nd.Status) string {
	if s != nd.InvalidParameter && (s < nd.InvalidParameter1 || s > nd.InvalidParameter10) {
		return ""
	}
	return parameterNames[parameter{op, s}]
}

type parameter struct {
	op     string
	status nd.Status
}

var parameterNames = map[parameter]string{
	{"allocate memory region", nd.InvalidParameter}:        "size",
	{"allocate memory region", nd.InvalidParameter3}:       "flags",
	{"bind", nd.InvalidParameter2}:                         "mr",
	{"bind", nd.InvalidParameter3}:                         "mw",
	{"bind", nd.InvalidParameter6}:                         "flags",
	{"build logical address mapping", nd.InvalidParameter}: "buf",
	{"accept", nd.InvalidParameter1}:                       "ep",
	{"connect", nd.InvalidParameter1}:                      "ep",
	{"create completion queue", nd.InvalidParameter3}:      "depth",
	{"create endpoint", nd.InvalidParameter2}:              "ReceiveCQ",
	{"create endpoint", nd.InvalidParameter3}:              "InitiatorCQ",
	{"create endpoint", nd.InvalidParameter4}:              "SharedReceive",
	{"create shared receive queue", nd.InvalidParameter3}:  "Depth",
	{"create shared receive queue", nd.InvalidParameter4}:  "MaxSGE",
	{"create shared receive queue", nd.InvalidParameter5}:  "Threshold",
	{"fast register", nd.InvalidParameter2}:                "mr",
	{"fast register", nd.InvalidParameter3}:                "pages",
	{"fast register", nd.InvalidParameter4}:                "pages",
	{"fast register", nd.InvalidParameter5}:                "offset",
	{"fast register", nd.InvalidParameter6}:                "length",
	{"fast register", nd.InvalidParameter7}:                "baseAddress",
	{"fast register", nd.InvalidParameter8}:                "rights, flags",
	{"get connection request", nd.InvalidParameter1}:       "c",
	{"initialize fast register", nd.InvalidParameter1}:     "pages",
	{"invalidate", nd.InvalidParameter2}:                   "mw",
	{"invalidate", nd.InvalidParameter3}:                   "flags",
	{"invalidate region", nd.InvalidParameter2}:            "mr",
	{"invalidate region", nd.InvalidParameter3}:            "flags",
	{"listen", nd.InvalidParameter1}:                       "backlog",
	{"notify", nd.InvalidParameter1}:                       "t",
	{"read", nd.InvalidParameter6}:                         "flags",
	{"register", nd.InvalidParameter}:                      "buf",
	{"register", nd.InvalidParameter3}:                     "flags",
	{"resize", nd.InvalidParameter}:                        "depth",
	{"send", nd.InvalidParameter4}:                         "flags",
	{"send and invalidate", nd.InvalidParameter4}:          "flags",
	{"wait", nd.InvalidParameter}:                          "results",
	{"write", nd.InvalidParameter6}:                        "flags",
}
