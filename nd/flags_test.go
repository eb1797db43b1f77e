package nd

import "testing"

func TestFlagNumbers(t *testing.T) {
	for _, tc := range []struct {
		name      string
		got, want uint32
	}{
		{"SilentSuccess", uint32(SilentSuccess), 0x1},
		{"ReadFence", uint32(ReadFence), 0x2},
		{"SendAndSolicitEvent", uint32(SendAndSolicitEvent), 0x4},
		{"AllowRead", uint32(AllowRead), 0x8},
		{"AllowWrite", uint32(AllowWrite), 0x10},
		{"Inline", uint32(Inline), 0x20},
		{"ReadLocalInvalidate", uint32(ReadLocalInvalidate), 0x100},
		{"Defer", uint32(Defer), 0x200},
		{"ThisEndpointOnly", uint32(ThisEndpointOnly), 0x10000},
		{"AllowAtomic", uint32(AllowAtomic), 0x20000},

		{"AllowLocalWrite", uint32(AllowLocalWrite), 0x1},
		{"AllowRemoteRead", uint32(AllowRemoteRead), 0x2},
		{"AllowRemoteWrite", uint32(AllowRemoteWrite), 0x5},
		{"RDMAReadSink", uint32(RDMAReadSink), 0x8},
		{"AllowRemoteAtomic", uint32(AllowRemoteAtomic), 0x10001},
		{"HugePages", uint32(HugePages), 0x20000},
		{"Prefault", uint32(Prefault), 0x40000},
		{"RequirePlacement", uint32(RequirePlacement), 0x80000},
		{"OnNode(0)", uint32(OnNode(0)), 0x100000},
		{"OnNode(5)", uint32(OnNode(5)), 0x600000},
		{"OnNode(5000)", uint32(OnNode(5000)), 0x3ff00000},
		{"OnNode(-1)", uint32(OnNode(-1)), 0x3ff00000},
		{"DoNotSecureVM", uint32(DoNotSecureVM), 0x80000000},
		{"AllRegionFlags", uint32(AllRegionFlags), 0x8000000F},

		{"NotifyErrors", uint32(NotifyErrors), 0},
		{"NotifyAny", uint32(NotifyAny), 1},
		{"NotifySolicited", uint32(NotifySolicited), 2},

		{"InOrderDMASupported", uint32(InOrderDMASupported), 0x1},
		{"ReadSinkNotRequired", uint32(ReadSinkNotRequired), 0x2},
		{"InterruptModerationSupported", uint32(InterruptModerationSupported), 0x4},
		{"MultiEngineSupported", uint32(MultiEngineSupported), 0x8},
		{"ReadLocalInvalidateSupported", uint32(ReadLocalInvalidateSupported), 0x10},
		{"CQResizeSupported", uint32(CQResizeSupported), 0x100},
		{"LoopbackConnectionsSupported", uint32(LoopbackConnectionsSupported), 0x10000},

		{"AtomicsSupported", uint32(AtomicsSupported), 0x20000},
		{"ImmediateSupported", uint32(ImmediateSupported), 0x40000},
		{"PlacementSupported", uint32(PlacementSupported), 0x80000},

		{"TechnologyUndefined", uint32(TechnologyUndefined), 0},
		{"TechnologyIWARP", uint32(TechnologyIWARP), 1},
		{"TechnologyInfiniBand", uint32(TechnologyInfiniBand), 2},
		{"TechnologyRoCE", uint32(TechnologyRoCE), 3},
		{"TechnologyRoCEv2", uint32(TechnologyRoCEv2), 4},
	} {
		if tc.got != tc.want {
			t.Errorf("%s is %#x, want %#x", tc.name, tc.got, tc.want)
		}
	}
}

func TestRegionRights(t *testing.T) {
	for _, tc := range []struct {
		flags                               RegionFlags
		localWrite, remoteRead, remoteWrite bool
	}{
		{0, false, false, false},
		{AllowLocalWrite, true, false, false}, // shares a bit with AllowRemoteWrite
		{AllowRemoteRead, false, true, false},
		{AllowRemoteWrite, true, false, true},
		{RDMAReadSink | DoNotSecureVM, false, false, false},
	} {
		f := tc.flags
		if f.LocalWrite() != tc.localWrite || f.RemoteRead() != tc.remoteRead || f.RemoteWrite() != tc.remoteWrite {
			t.Errorf("%v: local write %v, remote read %v, remote write %v", f, f.LocalWrite(), f.RemoteRead(), f.RemoteWrite())
		}
	}
}

func TestNode(t *testing.T) {
	for flags, text := range map[RegionFlags]string{
		0:                             "0",
		OnNode(0):                     "OnNode(0)",
		OnNode(3) | Prefault:          "Prefault|OnNode(3)",
		AllowRemoteWrite | OnNode(17): "AllowRemoteWrite|OnNode(17)",
	} {
		node, ok := flags.Node()
		if got := flags.String(); got != text || ok != (flags != 0) || ok && flags&^(Prefault|AllowRemoteWrite) != OnNode(node) {
			t.Errorf("%#x is %s of node %d %v, want %s", uint32(flags), got, node, ok, text)
		}
	}
}

func TestNotifyTypeCombine(t *testing.T) {
	const e, a, s = NotifyErrors, NotifyAny, NotifySolicited
	for _, tc := range []struct{ now, also, want NotifyType }{
		{a, a, a}, {a, e, a}, {a, s, a},
		{e, a, a}, {e, e, e}, {e, s, s},
		{s, a, a}, {s, e, s}, {s, s, s},
	} {
		if got := tc.now.Combine(tc.also); got != tc.want {
			t.Errorf("%v with %v gives %v, want %v", tc.now, tc.also, got, tc.want)
		}
	}
}

func TestAllowedFlags(t *testing.T) {
	rows := map[RequestType]OpFlags{
		RequestReceive:               0,
		RequestReceiveAndInvalidate:  0,
		RequestReceiveImmediate:      0,
		RequestReceiveWriteImmediate: 0,
		RequestSend:                  0x227,
		RequestBind:                  0x3021B,
		RequestInvalidate:            0x203,
		RequestRead:                  0x303,
		RequestWrite:                 0x223,
		RequestFastRegister:          0x203,
		RequestFetchAndAdd:           0x203,
		RequestCompareAndSwap:        0x203,
		RequestSwap:                  0x203,
	}
	for typ := range requestTypeNames {
		want, ok := rows[typ]
		if !ok {
			t.Errorf("%v has no row", typ)
		}
		if got := typ.AllowedFlags(); got != want {
			t.Errorf("%v takes %v, want %v", typ, got, want)
		}
	}
}
