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
	for typ, want := range map[RequestType]OpFlags{
		RequestReceive:              0,
		RequestReceiveAndInvalidate: 0,
		RequestSend:                 0x227,
		RequestBind:                 0x3021B,
		RequestInvalidate:           0x203,
		RequestRead:                 0x303,
		RequestWrite:                0x223,
		RequestFastRegister:         0x203,
	} {
		if got := typ.AllowedFlags(); got != want {
			t.Errorf("%v takes %v, want %v", typ, got, want)
		}
	}
}
