package nd

import "strconv"

// Status is the outcome of a call or request. Its numbers are those of NetworkDirect, which are
// NTSTATUS values of Windows. The top two bits give the class: 00 success, 10 warning, 11 error.
//
// These statuses have several meanings:
//
//	BufferOverflow   from a post              the request has too many bytes
//	                 in a Receive's result    the message was larger than the buffers
//	                 from a query             the buffer is too short
//	                 from Notify, Wait        the completion queue has overrun
//	                 from Resize, Modify      the queue holds more than the new depth
//	DataOverrun      from a post              the request has too many scatter/gather entries
//	                 in a result              more data than the adapter can send
//	AccessViolation  from a call              the rights or the range are not allowed
//	                 in a result              a local or remote token does not allow the access
//
// Source: ND_*.
type Status uint32

// Statuses of class success.
const (
	Success Status = 0x00000000
	Timeout Status = 0x00000102 // not done in time; providers return IOTimeout instead
	Pending Status = 0x00000103 // not done yet
)

// Statuses of class warning. They are failures, like errors.
const (
	BufferOverflow Status = 0x80000005 // see Status
	DeviceBusy     Status = 0x80000011 // a window is bound to the region, or pages of the mapping are registered
	NoMoreEntries  Status = 0x8000001A // the queue is full
)

// Errors of arguments and object states: the call had no effect. InvalidDeviceRequest may also be
// the status of a result, and then ends the connection.
const (
	InvalidHandle            Status = 0xC0000008 // the object was closed
	InvalidParameter         Status = 0xC000000D // an argument is not valid: OpError.Field names it
	InvalidDeviceRequest     Status = 0xC0000010 // the state of an object does not allow the request, such as Invalidate of a window that is not bound
	BufferTooSmall           Status = 0xC0000023 // the buffer is too small; NDK only. Source: STATUS_BUFFER_TOO_SMALL.
	InvalidParameterMix      Status = 0xC0000030 // arguments contradict each other
	NotSupported             Status = 0xC00000BB // the provider does not have this optional part of the model
	InvalidDeviceState       Status = 0xC0000184 // the state of the object does not allow the call, such as Register of a registered region
	InvalidBufferSize        Status = 0xC0000206 // the private data is too long, or the memory to register is empty
	ImplementationLimit      Status = 0xC000042B // a limit of the provider; NDK only. Source: STATUS_IMPLEMENTATION_LIMIT.
	AddressAlreadyAssociated Status = 0xC0000238 // the object already has an address. Source: STATUS_ADDRESS_ALREADY_ASSOCIATED.
)

// Errors of the adapter and its resources.
const (
	Unsuccessful          Status = 0xC0000001 // no better status applies
	NoMemory              Status = 0xC0000017 // the host has no memory left
	InsufficientResources Status = 0xC000009A // the adapter has no resources left
	DeviceNotReady        Status = 0xC00000A3 // the helper library was not started: see ndcompat.Library
	InternalError         Status = 0xC00000E5 // the endpoint or queue is broken
	DeviceRemoved         Status = 0xC00002B6 // the adapter has vanished; only Close works
)

// Errors of requests. As the status of a result, they end the connection.
const (
	AccessViolation   Status = 0xC0000005 // see Status
	DataOverrun       Status = 0xC000003C // see Status
	DataError         Status = 0xC000003E // on some hardware: a Send was too long for its Receive. Source: STATUS_DATA_ERROR.
	IOTimeout         Status = 0xC00000B5 // the peer did not answer, or posted no Receive
	Canceled          Status = 0xC0000120 // of a request: flushed before it succeeded; of a call: its context ended, or its object was closed
	RemoteError       Status = 0xC000013D // the request failed at the peer; see also Endpoint.Read
	DataChecksumError Status = 0xC0000470 // the data changed in flight; see EndpointConfig. Source: STATUS_DATA_CHECKSUM_ERROR.
)

// Errors of addresses and connections.
const (
	SharingViolation       Status = 0xC0000043 // the address is in use
	BadNetworkName         Status = 0xC00000CC // Connect to the unspecified address. Source: STATUS_BAD_NETWORK_NAME.
	InvalidAddress         Status = 0xC0000141 // not a local address, or of an unknown family
	TooManyAddresses       Status = 0xC0000209 // no port is free
	AddressAlreadyExists   Status = 0xC000020A // the two addresses are already connected
	ConnectionDisconnected Status = 0xC000020C // the connection was disconnected gracefully. Source: STATUS_CONNECTION_DISCONNECTED.
	ConnectionRefused      Status = 0xC0000236 // there is no listener, its backlog is full, or the peer rejected the request
	ConnectionInvalid      Status = 0xC000023A // not connected, or not connecting
	ConnectionActive       Status = 0xC000023B // already connecting or connected
	NetworkUnreachable     Status = 0xC000023C // no network of the adapter has the address
	HostUnreachable        Status = 0xC000023D // no process has the address, or it has died
	ConnectionAborted      Status = 0xC0000241 // the peer closed its side, gave up or died
)

// InvalidationError and LocalLength are the names of two statuses in version 1 of NetworkDirect.
const (
	InvalidationError = InvalidDeviceRequest
	LocalLength       = DataOverrun
)

// statusTexts has the name of each constant, and its text in messages.
var statusTexts = map[Status]struct{ name, words string }{
	Success:                  {"Success", "success"},
	Timeout:                  {"Timeout", "not done in time"},
	Pending:                  {"Pending", "pending"},
	BufferOverflow:           {"BufferOverflow", "buffer overflow"},
	DeviceBusy:               {"DeviceBusy", "device busy"},
	NoMoreEntries:            {"NoMoreEntries", "no more entries"},
	Unsuccessful:             {"Unsuccessful", "unsuccessful"},
	AccessViolation:          {"AccessViolation", "access violation"},
	InvalidHandle:            {"InvalidHandle", "invalid handle"},
	InvalidParameter:         {"InvalidParameter", "invalid parameter"},
	InvalidDeviceRequest:     {"InvalidDeviceRequest", "invalid device request"},
	NoMemory:                 {"NoMemory", "no memory"},
	BufferTooSmall:           {"BufferTooSmall", "buffer too small"},
	InvalidParameterMix:      {"InvalidParameterMix", "invalid mix of parameters"},
	DataOverrun:              {"DataOverrun", "data overrun"},
	DataError:                {"DataError", "data error"},
	DataChecksumError:        {"DataChecksumError", "data checksum error"},
	SharingViolation:         {"SharingViolation", "sharing violation"},
	InsufficientResources:    {"InsufficientResources", "insufficient resources"},
	DeviceNotReady:           {"DeviceNotReady", "device not ready"},
	IOTimeout:                {"IOTimeout", "I/O timeout"},
	NotSupported:             {"NotSupported", "not supported"},
	BadNetworkName:           {"BadNetworkName", "bad network name"},
	InternalError:            {"InternalError", "internal error"},
	Canceled:                 {"Canceled", "canceled"},
	RemoteError:              {"RemoteError", "remote error"},
	InvalidAddress:           {"InvalidAddress", "invalid address"},
	InvalidDeviceState:       {"InvalidDeviceState", "invalid device state"},
	InvalidBufferSize:        {"InvalidBufferSize", "invalid buffer size"},
	TooManyAddresses:         {"TooManyAddresses", "too many addresses"},
	AddressAlreadyExists:     {"AddressAlreadyExists", "address already exists"},
	ConnectionDisconnected:   {"ConnectionDisconnected", "connection disconnected"},
	ConnectionRefused:        {"ConnectionRefused", "connection refused"},
	AddressAlreadyAssociated: {"AddressAlreadyAssociated", "address already associated"},
	ConnectionInvalid:        {"ConnectionInvalid", "connection invalid"},
	ConnectionActive:         {"ConnectionActive", "connection active"},
	NetworkUnreachable:       {"NetworkUnreachable", "network unreachable"},
	HostUnreachable:          {"HostUnreachable", "host unreachable"},
	ConnectionAborted:        {"ConnectionAborted", "connection aborted"},
	DeviceRemoved:            {"DeviceRemoved", "device removed"},
	ImplementationLimit:      {"ImplementationLimit", "implementation limit"},
}

// String returns the name of the constant, or "Status(0x...)" if s is not one of the constants.
func (s Status) String() string {
	if t, ok := statusTexts[s]; ok {
		return t.name
	}
	return s.hex()
}

// Error returns the status in words, after "nd: ".
func (s Status) Error() string { return "nd: " + s.words() }

// Failed reports whether s is a warning or an error. [Timeout] and [Pending] are neither.
func (s Status) Failed() bool { return s&0x80000000 != 0 }

// Err returns s as an error, and nil for [Success].
func (s Status) Err() error {
	if s == Success {
		return nil
	}
	return s
}

func (s Status) words() string {
	if t, ok := statusTexts[s]; ok {
		return t.words
	}
	return s.hex()
}

func (s Status) hex() string {
	digits := strconv.FormatUint(uint64(s), 16)
	return "Status(0x" + "00000000"[:8-len(digits)] + digits + ")"
}
