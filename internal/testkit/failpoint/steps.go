package failpoint

// Point is a step of a protocol after which a process can die. Its name says what the process has just done.
type Point uint8

// Points, in the order of Steps.
const (
	MemberLocked Point = iota
	MemberTaken
	MemberCovered
	MemberFilled
	MemberLive
	LivenessRequested
	RankLeft
	MemberUnlocked
	MemberMarked
	DeathCounted
	DeathNumbered
	DeathDropped
	DeathSeen
	RecordLocked
	ChunksFreed
	RecordReclaimed
	WordClaimed
	RunClaimed
	PagesReserved
	PagesReleased
	WordFreed
	DoorbellArmed
	DoorbellMarked
	DoorbellDisarmed
	WaitersWoken

	EntryReserved
	EntryFilled
	EntryBound
	PermissionsRevoked
	EntryInvalidated
	EntryDrained
	HazardPublished
	EntryChecked
	ChunkCopied
	EntryRechecked
	HazardCleared
	LocalHazardPublished
	LocalCopied
	LocalHazardCleared

	RecordAllocated
	RecordFilled
	MailLinked
	MailSent
	MailTaken
	RequestAttached
	StateChanged
	PeerRung
	Disconnected
	ReasonStored
	FaultStatusStored
	FaultStored
	LastEntriesRead
	Detached
	RecordDetached
	RecordFreed

	SlotFilled
	SlotPublished
	SlotConsumed
	ResultStored
	SlotsReleased
	RoomStored
	LimitStored
	ReceivePosted
	CreditRefreshed
	WakeupRequested

	RankTaken
	RankWaits
	RankAdmitted
	BlobPublished
	BlobCopied
	BarrierArrived
	BarrierOpened
	RoundStored

	StatusOdd
	StatusWritten
	StatusEven
	StacksStored
	StacksAnswered

	NameBound
	HeaderFilled
	ArenaReady
	FabricCreated
	HelloSent
	WelcomeReceived
	JoinerAccepted
	HelloReceived
	WelcomeSent

	RelayNamed

	NamePublished
)

// Steps lists all points.
var Steps = [...]Step{
	// A member joins, leaves or dies, and its memory is reclaimed.
	MemberLocked:      {Name: "member-locked"},
	MemberTaken:       {Name: "member-taken", Orders: "next-owner"},
	MemberCovered:     {Name: "member-covered", Orders: "member-slots"},
	MemberFilled:      {Name: "member-filled"},
	MemberLive:        {Name: "member-live", Orders: "member-live"},
	LivenessRequested: {Name: "liveness-requested", Orders: "liveness-request"},
	RankLeft:          {Name: "rank-left", Scenario: Leave, Orders: "rank-left"},
	MemberUnlocked:    {Name: "member-unlocked"},
	MemberMarked:      {Name: "member-marked", Orders: "member-dead"},
	DeathCounted:      {Name: "death-counted", Orders: "death-count"},
	DeathNumbered:     {Name: "death-numbered", Orders: "death-epoch"},
	DeathDropped:      {Name: "death-dropped"},
	DeathSeen:         {Name: "death-seen", Orders: "death-seen"},
	RecordLocked:      {Name: "record-locked"},
	ChunksFreed:       {Name: "chunks-freed"},
	RecordReclaimed:   {Name: "record-reclaimed"},
	WordClaimed:       {Name: "word-claimed", Orders: "owned"},
	RunClaimed:        {Name: "run-claimed"},
	PagesReserved:     {Name: "pages-reserved"},
	PagesReleased:     {Name: "pages-released"},
	WordFreed:         {Name: "word-freed", Orders: "owned"},
	DoorbellArmed:     {Name: "doorbell-armed", Orders: "doorbell-armed"},
	DoorbellMarked:    {Name: "doorbell-marked"},
	DoorbellDisarmed:  {Name: "doorbell-disarmed", Orders: "doorbell-disarmed"},
	WaitersWoken:      {Name: "waiters-woken"},

	// A window entry, and the guarded access.
	EntryReserved:        {Name: "entry-reserved"},
	EntryFilled:          {Name: "entry-filled"},
	EntryBound:           {Name: "entry-bound", Orders: "entry-valid", Labels: "ENTRY-BIND"},
	PermissionsRevoked:   {Name: "permissions-revoked"},
	EntryInvalidated:     {Name: "entry-invalidated", Orders: "entry-recheck hazard", Labels: "ENTRY-INVALIDATE"},
	EntryDrained:         {Name: "entry-drained", Labels: "HAZARD-DRAIN"},
	HazardPublished:      {Name: "hazard-published", Orders: "hazard", Labels: "HAZARD-PUBLISH"},
	EntryChecked:         {Name: "entry-checked", Labels: "ENTRY-CHECK"},
	ChunkCopied:          {Name: "chunk-copied", Labels: "COPY"},
	EntryRechecked:       {Name: "entry-rechecked", Labels: "ENTRY-RECHECK"},
	HazardCleared:        {Name: "hazard-cleared", Orders: "hazard-clear", Labels: "HAZARD-CLEAR"},
	LocalHazardPublished: {Name: "local-hazard-published"},
	LocalCopied:          {Name: "local-copied"},
	LocalHazardCleared:   {Name: "local-hazard-cleared"},

	// A connection begins and ends.
	RecordAllocated:   {Name: "record-allocated"},
	RecordFilled:      {Name: "record-filled"},
	MailLinked:        {Name: "mail-linked"},
	MailSent:          {Name: "mail-sent", Orders: "mail"},
	MailTaken:         {Name: "mail-taken", Orders: "mail"},
	RequestAttached:   {Name: "request-attached"},
	StateChanged:      {Name: "state-changed", Orders: "conn-state end-revoke"},
	PeerRung:          {Name: "peer-rung"},
	Disconnected:      {Name: "disconnected", Orders: "disconnected"},
	ReasonStored:      {Name: "reason-stored", Orders: "reason"},
	FaultStatusStored: {Name: "fault-status-stored"},
	FaultStored:       {Name: "fault-stored", Orders: "fault"},
	LastEntriesRead:   {Name: "last-entries-read"},
	Detached:          {Name: "detached", Orders: "detached"},
	RecordDetached:    {Name: "record-detached"},
	RecordFreed:       {Name: "record-freed"},

	// Ring entries, receives and credit.
	SlotFilled:      {Name: "slot-filled"},
	SlotPublished:   {Name: "slot-published", Orders: "slot-full"},
	SlotConsumed:    {Name: "slot-consumed"},
	ResultStored:    {Name: "result-stored", Orders: "result-stored"},
	SlotsReleased:   {Name: "slots-released", Orders: "slot-free read-hash"},
	RoomStored:      {Name: "room-stored", Orders: "receive-room"},
	LimitStored:     {Name: "limit-stored", Orders: "receive-limit"},
	ReceivePosted:   {Name: "receive-posted", Orders: "receive-posted"},
	CreditRefreshed: {Name: "credit-refreshed"},
	WakeupRequested: {Name: "wakeup-requested", Orders: "need-wakeup"},

	// Collective calls.
	RankTaken:      {Name: "rank-taken", Scenario: Start, Orders: "rank-taken"},
	RankWaits:      {Name: "rank-waits", Scenario: Start, Orders: "rank-waits"},
	RankAdmitted:   {Name: "rank-admitted", Scenario: Start, Orders: "rank-admitted"},
	BlobPublished:  {Name: "blob-published"},
	BlobCopied:     {Name: "blob-copied"},
	BarrierArrived: {Name: "barrier-arrived", Orders: "barrier-arrived"},
	BarrierOpened:  {Name: "barrier-opened", Orders: "barrier-open"},
	RoundStored:    {Name: "round-stored", Scenario: Pair, Orders: "barrier-round"},

	// The status page.
	StatusOdd:      {Name: "status-odd", Scenario: Idle, Orders: "status-odd"},
	StatusWritten:  {Name: "status-written", Scenario: Idle},
	StatusEven:     {Name: "status-even", Scenario: Idle, Orders: "status-even"},
	StacksStored:   {Name: "stacks-stored", Scenario: Idle},
	StacksAnswered: {Name: "stacks-answered", Scenario: Idle, Orders: "stacks-answered"},

	// A fabric with a name.
	NameBound:       {Name: "name-bound", Scenario: Fabric},
	HeaderFilled:    {Name: "header-filled", Scenario: Fabric},
	ArenaReady:      {Name: "arena-ready", Scenario: Fabric, Orders: "arena-ready"},
	FabricCreated:   {Name: "fabric-created", Scenario: Fabric},
	HelloSent:       {Name: "hello-sent", Scenario: Fabric},
	WelcomeReceived: {Name: "welcome-received", Scenario: Fabric},
	JoinerAccepted:  {Name: "joiner-accepted", Scenario: Fabric},
	HelloReceived:   {Name: "hello-received", Scenario: Fabric},
	WelcomeSent:     {Name: "welcome-sent", Scenario: Fabric},

	// A member becomes the relay to other hosts.
	RelayNamed: {Name: "relay-named", Scenario: Relay, Orders: "relay-named"},

	// A member publishes a name.
	NamePublished: {Name: "name-published", Scenario: Name, Orders: "name-entry"},
}
