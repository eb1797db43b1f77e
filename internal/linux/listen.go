package linux

import (
	"os"
	"strconv"
	"strings"
)

// socketTables are the kernel's lists of sockets in /proc/PID/net. Each has its own field for the inode, and its own
// value of the fourth field for a socket that listens.
var socketTables = []struct {
	name    string
	inode   int
	listens string
}{{"tcp", 9, "0A"}, {"tcp6", 9, "0A"}, {"unix", 6, "00010000"}}

// Listens reports whether a process has a socket that listens for connections by TCP or at a Unix address. It
// is false if the process has ended, or if this process may not read its descriptors.
func Listens(pid int) bool {
	proc := "/proc/" + strconv.Itoa(pid)
	fds, _ := os.ReadDir(proc + "/fd") // on error there are none
	sockets := make(map[string]bool)
	for _, fd := range fds {
		target, _ := os.Readlink(proc + "/fd/" + fd.Name()) // "" if it was closed meanwhile
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			sockets[strings.TrimSuffix(inode, "]")] = true
		}
	}
	if len(sockets) == 0 {
		return false
	}
	for _, table := range socketTables {
		text, _ := os.ReadFile(proc + "/net/" + table.name) // not there without IPv6
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > table.inode && f[3] == table.listens && sockets[f[table.inode]] {
				return true
			}
		}
	}
	return false
}
