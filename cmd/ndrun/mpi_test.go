package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// mpiProgram builds testdata/mpi.c with MPICH.
func mpiProgram(t *testing.T) string {
	t.Helper()
	cc, err := exec.LookPath("mpicc.mpich")
	if err != nil {
		t.Skip("MPICH's compiler is not installed (Debian: mpich, libmpich-dev): ", err)
	}
	program := filepath.Join(t.TempDir(), "mpi")
	out, err := exec.CommandContext(t.Context(), cc, "-o", program, "testdata/mpi.c").CombinedOutput()
	if strings.Contains(string(out), "mpi.h: No such file") {
		t.Skipf("the headers of MPICH are not installed (Debian: libmpich-dev): %s", out)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

func TestMPI(t *testing.T) {
	t.Parallel()
	program := mpiProgram(t)
	for _, n := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			status, out, errOut := proctest.Run(t, ndrun(t, "-n", strconv.Itoa(n), program, "ring"))
			if status != 0 || errOut != "" {
				t.Fatalf("exit status %d, %s", status, errOut)
			}
			tokens := 0 // rank 0 has the last one, the others what passed by
			for rank := range n {
				tokens += (rank + 1) * (rank + 2) / 2
			}
			tokens += n*(n+1)/2 - 1
			for rank := range n {
				token := (rank + 1) * (rank + 2) / 2
				if rank == 0 {
					token = n * (n + 1) / 2
				}
				want := fmt.Sprintf("[%d] rank %d of %d: token %d, sum %d, %d share memory\n", rank, rank, n, token, tokens, n)
				if !strings.Contains(out, want) {
					t.Errorf("no line %q in\n%s", want, out)
				}
			}
		})
	}
}

// If a rank of MPI fails, the others do not wait for it, and the exit status is that of the rank.
func TestMPIFailures(t *testing.T) {
	t.Parallel()
	program := mpiProgram(t)
	shell := []string{"sh", "-c", `"$@"; true`, "sh"} // hides the code
	for _, tc := range []struct {
		mode    string
		wrapper []string
		status  int
		message string
	}{
		{"abort", nil, 9, "aborted the job with code 9; the other 2 ranks were stopped\n"},
		{"abort", shell, 9, "aborted the job with code 9; the other 2 ranks were stopped\n"},
		{"crash", nil, 139, "was killed by signal SIGSEGV"},
		{"crash", shell, 1, "exited with code 0, but failed (status 1): it sent PMI init and exited without PMI finalize (in MPI, without MPI_Finalize); the other 2 ranks were stopped\n"},
		{"unfinalized", nil, 1, "exited with code 0, but failed (status 1): it sent PMI init and exited without PMI finalize (in MPI, without MPI_Finalize); the other 2 ranks were stopped\n"},
	} {
		t.Run(fmt.Sprint(tc.mode, len(tc.wrapper)), func(t *testing.T) {
			args := append([]string{"-n", "3"}, tc.wrapper...)
			status, out, errOut := proctest.Run(t, ndrun(t, append(args, program, tc.mode)...))
			var said string // MPICH has something to say as well
			for line := range strings.Lines(errOut) {
				if strings.HasPrefix(line, "ndrun: ") {
					said += line
				}
			}
			if status != tc.status || !strings.HasPrefix(said, "ndrun: rank 1 (") || !strings.Contains(said, tc.message) {
				t.Errorf("exit status %d, want %d, with %q in\n%s%s", status, tc.status, tc.message, out, errOut)
			}
		})
	}
}

// MPI_Comm_spawn is refused.
func TestMPISpawn(t *testing.T) {
	status, out, errOut := proctest.Run(t, ndrun(t, "-n", "1", mpiProgram(t), "spawn"))
	if status != 0 || !strings.Contains(out, "[0] spawn failed\n") {
		t.Errorf("exit status %d, %s%s", status, out, errOut)
	}
}

// runPMI is a rank that sends its arguments to PMI, one per line, and prints the answers.
func runPMI() error {
	fd, err := strconv.Atoi(os.Getenv("PMI_FD"))
	if err != nil {
		return err
	}
	fmt.Println("rank", os.Getenv("PMI_RANK"), "of", os.Getenv("PMI_SIZE"), "local", os.Getenv("MPI_LOCALRANKID"), "of", os.Getenv("MPI_LOCALNRANKS"))
	file := os.NewFile(uintptr(fd), "pmi")
	answers := bufio.NewReader(file)
	for _, line := range os.Args[1:] {
		if _, err := io.WriteString(file, line+"\n"); err != nil {
			return err
		}
		answer, err := answers.ReadString('\n')
		if err != nil {
			return err
		}
		fmt.Print(answer)
	}
	return nil
}

func TestPMI(t *testing.T) {
	const hello, bye = "cmd=init pmi_version=1 pmi_subversion=1", "cmd=finalize"
	status, out, errOut := proctest.Run(t, ndrun(t, "-n", "2", "-env", proctest.RoleEnv+"=pmi", testBinary(t), hello,
		"mcmd=spawn\nnprocs=1\nexecname=true\nendcmd", "cmd=publish_name service=a port=b", "cmd=barrier_in", bye))
	if status != 0 {
		t.Errorf("exit status %d", status)
	}
	for rank := range 2 {
		for _, want := range []string{
			fmt.Sprintf("rank %d of 2 local %d of 2", rank, rank),
			"cmd=spawn_result rc=-1 msg=this_launcher_starts_no_more_processes_in_a_job",
			"cmd=publish_result rc=-1 msg=this_launcher_keeps_no_names info=fail",
			"cmd=barrier_out rc=0",
			"cmd=finalize_ack rc=0",
		} {
			if !strings.Contains(out, fmt.Sprintf("[%d] %s\n", rank, want)) {
				t.Errorf("rank %d does not say %q:\n%s", rank, want, out)
			}
		}
		for _, want := range []string{
			"ndrun: rank %d: PMI request refused: spawn processes (mcmd=spawn, MPI_Comm_spawn): start all ranks with -n\n",
			"ndrun: rank %d: PMI request refused: name service (publish_name): names would have to outlive the job\n",
		} {
			if want = fmt.Sprintf(want, rank); !strings.Contains(errOut, want) {
				t.Errorf("no line %q in\n%s", want, errOut)
			}
		}
	}
	status, _, errOut = proctest.Run(t, ndrun(t, "-n", "2", "-env", proctest.RoleEnv+"=pmi", testBinary(t), hello, "nonsense"))
	if status != 1 || !strings.Contains(errOut, "it sent a malformed PMI request: want name=value pairs") {
		t.Errorf("exit status %d, %s", status, errOut)
	}
}

// --timeout ends a job whose ranks wait in a PMI barrier.
func TestTimeoutInPMIBarrier(t *testing.T) {
	t.Parallel()
	for range 2 {
		var status int
		var errOut string
		for limit := range proctest.Limits(t, "the ranks wait in the barrier", 2*time.Second) {
			var out string
			status, out, errOut = proctest.Run(t, ndrun(t, "--timeout", limit.String(), "-n", "3", "-env", proctest.RoleEnv+"=pmi", testBinary(t),
				"cmd=init pmi_version=1 pmi_subversion=1", "cmd=barrier_in", ":", "-n", "1", "sleep", "600"))
			if strings.Count(out, "cmd=response_to_init") == 3 {
				break
			}
		}
		if status != 124 || strings.Contains(errOut, "aborted") {
			t.Errorf("exit status %d, want 124: %s", status, errOut)
		}
	}
}
