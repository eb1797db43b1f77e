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

// hint returns ": " and the next step for some system errors, to be appended to the message.
// [App.hint] covers errors about files, which mean something else there.
func hint(err error) string {
	return hintFrom(map[syscall.Errno]string{
		syscall.EMFILE: "raise the limit of open files (ulimit -Hn) or start fewer ranks",
		syscall.ENFILE: "start fewer ranks, or close files of other processes (the limit is that of the system)",
		syscall.EAGAIN: "raise the limit of processes (ulimit -u, or that of the container) or start fewer ranks",
		syscall.ENOMEM: "free memory or start fewer ranks",
	}, err)
}

// hint returns ": " and the next step for a rank that could not be started.
func (p *App) hint(err error) string {
	if errors.Is(err, syscall.ENOENT) {
		return ": " + p.missingFile()
	}
	return hint(err) + hintFrom(map[syscall.Errno]string{
		syscall.ENOEXEC: "build the program for this machine, or begin the script with a #! line",
		syscall.EACCES:  "check the permissions of the program and the working directory, and that their file system is not mounted noexec",
		syscall.ETXTBSY: "wait until no process writes the program",
		syscall.E2BIG:   "shorten the arguments or the environment",
	}, err)
}

func hintFrom(steps map[syscall.Errno]string, err error) string {
	for errno, step := range steps {
		if errors.Is(err, errno) {
			return ": " + step
		}
	}
	return ""
}

// missingFile returns which file is missing, and what to do.
func (p *App) missingFile() string {
	if p.Dir != "" {
		if _, err := os.Stat(p.Dir); errors.Is(err, os.ErrNotExist) {
			return fmt.Sprintf("working directory %s does not exist: create it or change it", p.Dir)
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
			return fmt.Sprintf("program %s does not exist: check the path", path)
		case err != nil:
			return "check the program, the interpreter of a script, and the working directory"
		}
		defer file.Close()
		program = file
	}
	if name := scriptInterpreter(program); name != "" {
		return fmt.Sprintf("interpreter %q of the script's #! line does not exist: install it or change that line", name)
	}
	if name := dynamicLoader(program); name != "" {
		return fmt.Sprintf("dynamic loader %s of the program does not exist: install the C library that the program was built with, or rebuild it", name)
	}
	return "check the program, and that /proc is mounted"
}

// scriptInterpreter returns the interpreter of a #! line, "" if there is no such line.
func scriptInterpreter(script io.ReaderAt) string {
	line, _ := bufio.NewReader(io.NewSectionReader(script, 0, 4096)).ReadString('\n')
	command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "#!")
	name, _, _ := strings.Cut(strings.Trim(command, " \t"), " ")
	if !ok {
		return ""
	}
	return name
}

// dynamicLoader returns the dynamic loader of a 64-bit ELF file in this byte order, "" if the
// kernel starts the file itself. (Package debug/elf would make each start of a launcher slower.)
func dynamicLoader(program io.ReaderAt) string {
	const interpreter = 3 // PT_INTERP
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
