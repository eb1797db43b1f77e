// Package failpoint kills or stops the process at a named step of a protocol in shared memory. Tests use it to find
// out what the survivors of a death see at each step.
//
// Only a program built with the tag failpoints has the points. In every other build [Reach] is empty and inlined, so a
// point costs nothing. Even so, the compiler may assign registers differently around the call. So the functions of the
// fast path make the call only if [Enabled] is true. The test of this package checks that no instruction differs.
//
// The environment variable SOFTND_FAILPOINT arms one point: name:n or name:n:action. The action happens the n-th time
// that the process reaches the point. It is "kill" (the default), which is SIGKILL, or "stop", which is SIGSTOP. [Arm]
// does the same in a running process, and [ArmFunc] runs a function of the test.
package failpoint

// Env names the environment variable that arms a point.
const Env = "SOFTND_FAILPOINT"

// Scenario is what a process must do to reach a point. The kill matrix has a test for each.
type Scenario uint8

// Scenarios.
const (
	Job    Scenario = iota // rank of a job: connections, memory, and collective calls of more than two ranks
	Start                  // rank that joins its job
	Leave                  // rank that leaves its job
	Pair                   // collective calls of a job of two ranks
	Idle                   // rank without progress, whose status page an observer reads
	Fabric                 // process that creates, joins or serves a named fabric
	Relay                  // relay to other hosts
	Name                   // name of an address
)

// Step describes a point.
type Step struct {
	Name     string
	Scenario Scenario
	Orders   string // names of the table of orders in docs/shared-memory.md, separated by spaces
	Labels   string // labels of the guarded access in docs/architecture.md, separated by spaces
}

// Name returns the name that arms the point.
func (p Point) Name() string { return Steps[p].Name }
