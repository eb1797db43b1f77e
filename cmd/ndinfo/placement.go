package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/shm"
)

// The placements of nd.Adapter.Allocate that the machine can fulfil: huge pages and NUMA nodes.

func checkHugePages() check { return hugePagesCheck(os.DirFS("/"), tryHugePages()) }

func hugePagesCheck(root fs.FS, lacks error) check {
	const name = "huge pages"
	found := fmt.Sprintf("shmem_enabled is %s, reserved pages: %s", chosen(root, "sys/kernel/mm/transparent_hugepage/shmem_enabled"), reservedPages(root))
	if lacks != nil {
		return good(name, "none for arenas (%v); %s", lacks, found)
	}
	return good(name, "arenas have them on request; %s", found)
}

// tryHugePages returns why an arena of this process has no huge pages.
func tryHugePages() error {
	arena, err := shm.Create(shm.Config{Size: 256 << 20})
	if err != nil {
		return err
	}
	defer arena.Close()
	member, err := arena.Join(shm.NoRank)
	if err != nil {
		return err
	}
	defer member.Leave()
	_, _, lacks, err := member.AllocPlaced(1, shm.Placement{HugePages: true})
	return cmp.Or(err, lacks)
}

// chosen returns the word in brackets of a file such as "always [never]".
func chosen(root fs.FS, file string) string {
	_, word, found := strings.Cut(text(root, file), "[")
	word, _, closed := strings.Cut(word, "]")
	if !found || !closed {
		return "unknown"
	}
	return word
}

// reservedPages describes the huge pages that the machine has reserved, which arenas do not use.
func reservedPages(root fs.FS) string {
	const pools = "sys/kernel/mm/hugepages"
	entries, _ := fs.ReadDir(root, pools)
	type pool struct{ kib, free, all int }
	var list []pool
	for _, e := range entries {
		number := func(file string) int { n, _ := strconv.Atoi(text(root, path.Join(pools, e.Name(), file))); return n }
		if kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB")); err == nil {
			list = append(list, pool{kib, number("free_hugepages"), number("nr_hugepages")})
		}
	}
	slices.SortFunc(list, func(a, b pool) int { return cmp.Compare(a.kib, b.kib) })
	var out []string
	for _, p := range list {
		out = append(out, fmt.Sprintf("%s %d of %d free", mebibytes(uint64(p.kib)<<10), p.free, p.all))
	}
	return cmp.Or(strings.Join(out, ", "), "none")
}

func checkNodes() check { return nodesCheck(os.DirFS("/")) }

// nodesCheck lists the NUMA nodes with memory. Those that the cpuset of the process leaves out are not usable.
func nodesCheck(root fs.FS) check {
	const name, nodes = "NUMA", "sys/devices/system/node"
	all, err := linux.ParseList(text(root, nodes+"/has_memory"), 1<<16)
	if err != nil {
		return good(name, "no nodes")
	}
	allowed := all
	for line := range strings.Lines(text(root, "proc/self/status")) {
		if list, ok := strings.CutPrefix(line, "Mems_allowed_list:"); ok {
			if some, err := linux.ParseList(strings.TrimSpace(list), 1<<16); err == nil {
				allowed = some
			}
		}
	}
	var out []string
	for _, n := range all {
		node := fmt.Sprintf("node %d: not usable", n)
		if slices.Contains(allowed, n) {
			node = fmt.Sprintf("node %d: %s free", n, mebibytes(freeOf(text(root, fmt.Sprintf("%s/node%d/meminfo", nodes, n)))))
		}
		out = append(out, node)
	}
	return good(name, "%s", strings.Join(out, ", "))
}

// freeOf returns the bytes of the line "Node 0 MemFree: 123 kB" of meminfo.
func freeOf(meminfo string) uint64 {
	for line := range strings.Lines(meminfo) {
		if f := strings.Fields(line); len(f) >= 4 && f[2] == "MemFree:" {
			kib, _ := strconv.ParseUint(f[3], 10, 54)
			return kib << 10
		}
	}
	return 0
}

func text(root fs.FS, file string) string {
	b, _ := fs.ReadFile(root, file)
	return strings.TrimSpace(string(b))
}
