package main

import (
	"errors"
	"testing"
	"testing/fstest"
)

func files(texts map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, text := range texts {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

func TestHugePagesCheck(t *testing.T) {
	const shmem, pools = "sys/kernel/mm/transparent_hugepage/shmem_enabled", "sys/kernel/mm/hugepages/"
	for _, tc := range []struct {
		texts map[string]string
		lacks error
		want  string
	}{
		{nil, nil, "arenas have them on request; shmem_enabled is unknown, reserved pages: none"},
		{nil, errors.New("x"), "none for arenas (x); shmem_enabled is unknown, reserved pages: none"},
		{map[string]string{
			shmem: "always within_size [advise] never deny force\n",
			pools + "hugepages-1048576kB/nr_hugepages": "3\n", pools + "hugepages-1048576kB/free_hugepages": "2\n",
			pools + "hugepages-2048kB/nr_hugepages": "0\n", pools + "hugepages-2048kB/free_hugepages": "0\n",
			pools + "odd/nr_hugepages": "7\n",
		}, nil, "arenas have them on request; shmem_enabled is advise, reserved pages: 2 MiB 0 of 0 free, 1024 MiB 2 of 3 free"},
		{map[string]string{shmem: "always [never"}, nil, "arenas have them on request; shmem_enabled is unknown, reserved pages: none"},
	} {
		if c := hugePagesCheck(files(tc.texts), tc.lacks); c.Found != tc.want || c.Status != ok {
			t.Errorf("%v: %+v, want %q", tc.texts, c, tc.want)
		}
	}
}

func TestNodesCheck(t *testing.T) {
	const nodes, status = "sys/devices/system/node/", "proc/self/status"
	for _, tc := range []struct {
		texts map[string]string
		want  string
	}{
		{nil, "no nodes"},
		{map[string]string{nodes + "has_memory": "odd\n"}, "no nodes"},
		{map[string]string{nodes + "has_memory": "0\n", nodes + "node0/meminfo": "Node 0 MemTotal: 10240 kB\nNode 0 MemFree:  5120 kB\n"}, "node 0: 5 MiB free"},
		{map[string]string{
			nodes + "has_memory": "0,2-3\n", status: "Name:\tx\nMems_allowed_list:\t0,3\n",
			nodes + "node0/meminfo": "Node 0 MemFree: 1024 kB\n", nodes + "node2/meminfo": "Node 2 MemFree: 2048 kB\n",
		}, "node 0: 1 MiB free, node 2: not usable, node 3: 0 MiB free"},
	} {
		if c := nodesCheck(files(tc.texts)); c.Found != tc.want || c.Status != ok {
			t.Errorf("%v: %+v, want %q", tc.texts, c, tc.want)
		}
	}
}
