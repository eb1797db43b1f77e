package window

// TWIN c/src/window/guard.h, c/src/window/guard.c, c/src/endpoint/describe.c.

// Fault says why a copy was refused.
type Fault uint8

const (
	NoFault           Fault = iota // it was not refused
	faultBadToken                  // the token is unknown, not valid, or of an adapter that is not at the other end
	faultRevoked                   // the token became invalid during the transfer
	faultOtherScope                // the token is valid on another connection only
	faultNoRight                   // the token does not grant the access right
	faultOutOfRange                // the range is not within the memory
	FaultUnreachable               // the memory is private to its owner, so only the owner can copy
	FaultDisconnected              // the connection has ended
	faultUnaligned                 // the address of an atomic is not a multiple of 8 in memory
	faultUnspecified               // any of these; Guard.Copy finds out which
)

var faultText = [...]string{
	NoFault:           "none",
	faultBadToken:     "the token is not valid",
	faultRevoked:      "the token was revoked during the transfer",
	faultOtherScope:   "the token is valid on another connection only",
	faultNoRight:      "the token does not grant this right",
	faultOutOfRange:   "the range is outside the granted memory",
	FaultUnreachable:  "the memory is private to its owner",
	FaultDisconnected: "the connection has ended",
	faultUnaligned:    "the 8 bytes are not aligned in memory",
	faultUnspecified:  "the access was refused",
}

func (f Fault) String() string {
	if int(f) < len(faultText) {
		return faultText[f]
	}
	return "unknown fault"
}

// rightsFault returns the fault of a token that lacks rights. A local token used as a remote one,
// or the reverse, counts as an invalid token.
func rightsFault(have, want Rights) Fault {
	if kind := want & (Remote | Local); have&kind != kind {
		return faultBadToken
	}
	return faultNoRight
}
