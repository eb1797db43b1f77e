package main

import (
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"strings"

	"github.com/softnd/softnd/nd"
)

// adapter describes an adapter in the report. Programs read this format, so it stays as it is if
// nd.AdapterInfo changes. Identifiers are strings because many JSON parsers round numbers above 2^53.
type adapter struct {
	ID        string   `json:"id"`
	Addresses []string `json:"addresses"`
	Vendor    string   `json:"vendor"`
	Device    string   `json:"device"`
	Flags     []string `json:"flags"`
	Limits    limits   `json:"limits"`
}

// limits has the limits of nd.AdapterInfo, in the same order and with the same names.
type limits struct {
	MaxRegistrationSize        uint64 `json:"max_registration_size"`
	MaxWindowSize              uint64 `json:"max_window_size"`
	MaxInitiatorSGE            uint32 `json:"max_initiator_sge"`
	MaxReceiveSGE              uint32 `json:"max_receive_sge"`
	MaxReadSGE                 uint32 `json:"max_read_sge"`
	MaxTransferLength          uint32 `json:"max_transfer_length"`
	MaxInlineDataSize          uint32 `json:"max_inline_data_size"`
	MaxInboundReadLimit        uint32 `json:"max_inbound_read_limit"`
	MaxOutboundReadLimit       uint32 `json:"max_outbound_read_limit"`
	MaxReceiveQueueDepth       uint32 `json:"max_receive_queue_depth"`
	MaxInitiatorQueueDepth     uint32 `json:"max_initiator_queue_depth"`
	MaxSharedReceiveQueueDepth uint32 `json:"max_shared_receive_queue_depth"`
	MaxCompletionQueueDepth    uint32 `json:"max_completion_queue_depth"`
	InlineRequestThreshold     uint32 `json:"inline_request_threshold"`
	LargeRequestThreshold      uint32 `json:"large_request_threshold"`
	MaxCallerData              uint32 `json:"max_caller_data"`
	MaxCalleeData              uint32 `json:"max_callee_data"`
	MaxInterHostConnections    uint32 `json:"max_inter_host_connections"`
}

func describe(info nd.AdapterInfo, addresses []netip.Addr) adapter {
	a := adapter{
		ID:        info.AdapterID.String(),
		Addresses: []string{},
		Vendor:    fmt.Sprintf("%#04x", info.VendorID),
		Device:    fmt.Sprintf("%#04x", info.DeviceID),
		Flags:     []string{},
		Limits: limits{
			MaxRegistrationSize:        info.MaxRegistrationSize,
			MaxWindowSize:              info.MaxWindowSize,
			MaxInitiatorSGE:            info.MaxInitiatorSGE,
			MaxReceiveSGE:              info.MaxReceiveSGE,
			MaxReadSGE:                 info.MaxReadSGE,
			MaxTransferLength:          info.MaxTransferLength,
			MaxInlineDataSize:          info.MaxInlineDataSize,
			MaxInboundReadLimit:        info.MaxInboundReadLimit,
			MaxOutboundReadLimit:       info.MaxOutboundReadLimit,
			MaxReceiveQueueDepth:       info.MaxReceiveQueueDepth,
			MaxInitiatorQueueDepth:     info.MaxInitiatorQueueDepth,
			MaxSharedReceiveQueueDepth: info.MaxSharedReceiveQueueDepth,
			MaxCompletionQueueDepth:    info.MaxCompletionQueueDepth,
			InlineRequestThreshold:     info.InlineRequestThreshold,
			LargeRequestThreshold:      info.LargeRequestThreshold,
			MaxCallerData:              info.MaxCallerData,
			MaxCalleeData:              info.MaxCalleeData,
			MaxInterHostConnections:    info.MaxInterHostConnections,
		},
	}
	for _, addr := range addresses {
		a.Addresses = append(a.Addresses, addr.String())
	}
	if info.AdapterFlags != 0 {
		a.Flags = strings.Split(info.AdapterFlags.String(), "|")
	}
	return a
}

// print writes one line for each field, with a tab before the value.
func (a *adapter) print(w io.Writer) {
	fmt.Fprintf(w, "\nadapter %s at %s\n", a.ID, strings.Join(a.Addresses, ", "))
	fmt.Fprintf(w, "  Vendor\t%s\n  Device\t%s\n", a.Vendor, a.Device)
	v := reflect.ValueOf(a.Limits)
	for i := range v.NumField() {
		fmt.Fprintf(w, "  %s\t%v\n", v.Type().Field(i).Name, v.Field(i))
	}
	fmt.Fprintf(w, "  Flags\t%s\n", strings.Join(a.Flags, ", "))
}
