package launcher

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// remedy is the next step for some errors of the system, to be put behind them. Errors
// about a file mean something else for each: see [Part.remedy].
func remedy(err error) string {
	return remedyIn(map[syscall.Errno]string{
		syscall.EMFILE: "raise the limit of open files (ulimit -Hn) or start fewer ranks",
		syscall.ENFILE: "the whole system has too many files open: start fewer ranks",
		syscall.EAGAIN: "raise the limit of processes (ulimit -u, or the container's) or start fewer ranks",
		syscall.ENOMEM: "free memory or start fewer ranks",
	}, err)
}

// remedy is the next step for a rank that could not be started.
func (p *Part) remedy(err error) string {
	if errors.Is(err, syscall.ENOENT) {
		return "; " + p.missing()
	}
	return remedy(err) + remedyIn(map[syscall.Errno]string{
		syscall.ENOEXEC: "it is not a program for this machine, or a script without a #! line",
		syscall.EACCES:  "check the permissions of the program and the working directory, and that their file system allows programs (noexec)",
		syscall.ETXTBSY: "the program is being written: wait for its build to end",
		syscall.E2BIG:   "shorten the arguments or the environment",
	}, err)
}

func remedyIn(steps map[syscall.Errno]string, err error) string {
	for errno, step := range steps {
		if errors.Is(err, errno) {
			return "; " + step
		}
	}
	return ""
}

// missing names the file without which the program does not start.
func (p *Part) missing() string {
	if p.Dir != "" {
		if _, err := os.Stat(p.Dir); errors.Is(err, os.ErrNotExist) {
			return fmt.Sprintf("the working directory %s does not exist: name one that does", p.Dir)
		}
	}
	program := p.Program
	if program == nil {
		path := p.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(p.Dir, path)
		}
		file, err := os.Open(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return fmt.Sprintf("the program %s does not exist: check the path", path)
		case err != nil:
			return "check the program, the interpreter in its first line if it is a script, and the working directory"
		}
		defer file.Close()
		program = file
	}
	if name := scriptInterpreter(program); name != "" {
		return fmt.Sprintf("the interpreter %q in the first line of the script does not exist: install it, or correct that line", name)
	}
	if name := dynamicLoader(program); name != "" {
		return fmt.Sprintf("the program's dynamic loader %s does not exist: install the C library that the program was built with, or build it for this system", name)
	}
	return "check the program, and that /proc is mounted"
}

// scriptInterpreter is the program in a #! line; "" if there is no such line.
func scriptInterpreter(script io.ReaderAt) string {
	line, _ := bufio.NewReader(io.NewSectionReader(script, 0, 4096)).ReadString('\n')
	command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "#!")
	name, _, _ := strings.Cut(strings.Trim(command, " \t"), " ")
	if !ok {
		return ""
	}
	return name
}

// dynamicLoader is the program that the kernel starts to load a 64-bit ELF file of this
// byte order; "" if it starts the file itself. (Package debug/elf would slow down each
// start of a launcher.)
func dynamicLoader(program io.ReaderAt) string {
	const interpreter = 3 // type of the program header that names it
	var head struct {
		Ident                                      [16]byte
		Type, Machine                              uint16
		Version                                    uint32
		Entry, Headers, Sections                   uint64
		Flags                                      uint32
		Size, HeaderSize, HeaderCount, _, _, Index uint16
	}
	var part struct {
		Type, Flags                               uint32
		Offset, Address, _, Length, Memory, Align uint64
	}
	read := func(at uint64, to any) bool {
		return binary.Read(io.NewSectionReader(program, int64(at), 4096), binary.NativeEndian, to) == nil
	}
	if !read(0, &head) || !bytes.HasPrefix(head.Ident[:], []byte("\x7fELF\x02")) {
		return ""
	}
	for i := range uint64(head.HeaderCount) {
		if !read(head.Headers+i*uint64(head.HeaderSize), &part) {
			return ""
		}
		if part.Type == interpreter {
			name := make([]byte, min(part.Length, 4096))
			n, _ := program.ReadAt(name, int64(part.Offset))
			return string(bytes.TrimRight(name[:n], "\x00"))
		}
	}
	return ""
}
