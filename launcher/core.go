package launcher

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// corePattern is the kernel's setting for core files.
type corePattern struct {
	text    string // of /proc/sys/kernel/core_pattern
	withPID bool   // the kernel appends ".PID" to a name without %p
}

func readCorePattern() corePattern {
	text, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
	with, _ := os.ReadFile("/proc/sys/kernel/core_uses_pid")
	return corePattern{strings.TrimSuffix(string(text), "\n"), strings.TrimSpace(string(with)) == "1"}
}

// handler returns the program to which the kernel pipes cores, "" if it writes files.
func (p corePattern) handler() string {
	command, ok := strings.CutPrefix(p.text, "|")
	if f := strings.Fields(command); ok && len(f) > 0 {
		return f[0]
	}
	return ""
}

// find returns the core file of a process that died of sig and was started in dir. It returns ""
// if no file matches, for example because the process had changed its directory.
func (p corePattern) find(dir string, pid int, sig syscall.Signal, began time.Time) string {
	if p.text == "" || p.handler() != "" {
		return ""
	}
	at := p.glob(pid, sig)
	if !filepath.IsAbs(at) {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return ""
		}
		at = escapeGlob(abs) + "/" + at
	}
	matches, _ := filepath.Glob(at)
	newest, found := began.Add(-time.Second), "" // file systems may round time stamps down
	for _, m := range matches {
		if info, err := os.Stat(m); err == nil && info.Mode().IsRegular() && info.ModTime().After(newest) {
			newest, found = info.ModTime(), m
		}
	}
	return found
}

// glob returns the pattern for [filepath.Glob] that matches the names which the kernel may derive
// from p. Fields that are unknown here, such as the thread's name, match anything.
func (p corePattern) glob(pid int, sig syscall.Signal) string {
	var b strings.Builder
	hasPID := false
	for i := 0; i < len(p.text); i++ {
		c := p.text[i]
		if c != '%' {
			b.WriteString(escapeGlob(string(c)))
			continue
		}
		if i++; i == len(p.text) {
			break // the kernel drops a trailing % too
		}
		switch p.text[i] {
		case '%':
			b.WriteByte('%')
		case 'p':
			b.WriteString(strconv.Itoa(pid))
			hasPID = true
		case 's':
			b.WriteString(strconv.Itoa(int(sig)))
		case 'u':
			b.WriteString(strconv.Itoa(os.Getuid()))
		case 'g':
			b.WriteString(strconv.Itoa(os.Getgid()))
		default:
			b.WriteByte('*')
		}
	}
	if p.withPID && !hasPID {
		b.WriteString("." + strconv.Itoa(pid))
	}
	return b.String()
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}
