//go:build ignore

// A Go program that calls the library through cgo writes from one queue pair to another, and reads back.
package main

/*
#cgo LDFLAGS: -libverbs
#include <stdlib.h>
#include <infiniband/verbs.h>
*/
import "C"

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"
)

const rights = C.IBV_ACCESS_LOCAL_WRITE | C.IBV_ACCESS_REMOTE_WRITE | C.IBV_ACCESS_REMOTE_READ

var masks = map[uint32]C.int{
	C.IBV_QPS_INIT: C.IBV_QP_STATE | C.IBV_QP_PKEY_INDEX | C.IBV_QP_PORT | C.IBV_QP_ACCESS_FLAGS,
	C.IBV_QPS_RTR:  C.IBV_QP_STATE | C.IBV_QP_AV | C.IBV_QP_PATH_MTU | C.IBV_QP_DEST_QPN | C.IBV_QP_RQ_PSN | C.IBV_QP_MAX_DEST_RD_ATOMIC | C.IBV_QP_MIN_RNR_TIMER,
	C.IBV_QPS_RTS:  C.IBV_QP_STATE | C.IBV_QP_TIMEOUT | C.IBV_QP_RETRY_CNT | C.IBV_QP_RNR_RETRY | C.IBV_QP_SQ_PSN | C.IBV_QP_MAX_QP_RD_ATOMIC,
}

func check(ok bool, what string, err error) {
	if !ok {
		fmt.Fprintln(os.Stderr, what, err)
		os.Exit(1)
	}
}

func connect(qp, peer *C.struct_ibv_qp) {
	for _, state := range []uint32{C.IBV_QPS_INIT, C.IBV_QPS_RTR, C.IBV_QPS_RTS} {
		attr := C.struct_ibv_qp_attr{qp_state: state, port_num: 1, qp_access_flags: rights, path_mtu: C.IBV_MTU_4096, dest_qp_num: peer.qp_num, max_rd_atomic: 1, max_dest_rd_atomic: 1,
			min_rnr_timer: 12, timeout: 14, retry_cnt: 7, rnr_retry: 7, ah_attr: C.struct_ibv_ah_attr{dlid: 1, port_num: 1}}
		r, err := C.ibv_modify_qp(qp, &attr, masks[state])
		check(r == 0, fmt.Sprint("state ", state), err)
	}
}

// transfer moves bytes between near and far, and waits for the completion.
func transfer(qp *C.struct_ibv_qp, cq *C.struct_ibv_cq, opcode uint32, near, far *C.struct_ibv_mr) {
	var pins runtime.Pinner
	defer pins.Unpin()
	sge := &C.struct_ibv_sge{addr: C.uint64_t(uintptr(near.addr)), length: C.uint32_t(near.length), lkey: near.lkey}
	pins.Pin(sge)
	wr := C.struct_ibv_send_wr{wr_id: 7, sg_list: sge, num_sge: 1, opcode: opcode, send_flags: C.IBV_SEND_SIGNALED}
	*(*uint64)(unsafe.Pointer(&wr.wr[0])) = uint64(uintptr(far.addr))
	*(*uint32)(unsafe.Pointer(&wr.wr[8])) = uint32(far.rkey)
	var bad *C.struct_ibv_send_wr
	r, err := C.ibv_post_send(qp, &wr, &bad)
	check(r == 0, "post", err)
	var wc C.struct_ibv_wc
	for end := time.Now().Add(30 * time.Second); C.ibv_poll_cq(cq, 1, &wc) == 0; runtime.Gosched() {
		check(time.Now().Before(end), "no completion", nil)
	}
	check(wc.status == C.IBV_WC_SUCCESS && wc.wr_id == 7, "completion", fmt.Errorf("status %d", wc.status))
}

func main() {
	list, err := C.ibv_get_device_list(nil)
	check(list != nil && *list != nil, "devices", err)
	context, err := C.ibv_open_device(*list)
	check(context != nil, "open", err)
	C.ibv_free_device_list(list)
	pd := C.ibv_alloc_pd(context)
	cq, err := C.ibv_create_cq(context, 16, nil, nil, 0)
	check(pd != nil && cq != nil, "completion queue", err)
	const size = 5000
	var memory [2][]byte
	var regions [2]*C.struct_ibv_mr
	var qps [2]*C.struct_ibv_qp
	for i := range qps {
		// Memory of Go may be registered, as long as it does not move.
		memory[i] = bytes.Repeat([]byte{byte(i + 1)}, size)
		var pins runtime.Pinner
		defer pins.Unpin()
		pins.Pin(&memory[i][0])
		regions[i], err = C.ibv_reg_mr(pd, unsafe.Pointer(&memory[i][0]), size, rights)
		check(regions[i] != nil, "region", err)
		qps[i], err = C.ibv_create_qp(pd, &C.struct_ibv_qp_init_attr{send_cq: cq, recv_cq: cq, qp_type: C.IBV_QPT_RC, cap: C.struct_ibv_qp_cap{max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1}})
		check(qps[i] != nil, "queue pair", err)
	}
	connect(qps[0], qps[1])
	connect(qps[1], qps[0])
	transfer(qps[0], cq, C.IBV_WR_RDMA_WRITE, regions[0], regions[1])
	check(bytes.Count(memory[1], []byte{1}) == size, "Write: wrong bytes", nil)
	memory[1][size-1] = 9
	transfer(qps[0], cq, C.IBV_WR_RDMA_READ, regions[0], regions[1])
	check(memory[0][size-1] == 9 && memory[0][0] == 1, "Read: wrong bytes", nil)
	for i := range qps {
		check(C.ibv_destroy_qp(qps[i]) == 0 && C.ibv_dereg_mr(regions[i]) == 0, "destroy", nil)
	}
	check(C.ibv_destroy_cq(cq) == 0 && C.ibv_dealloc_pd(pd) == 0 && C.ibv_close_device(context) == 0, "close", nil)
	fmt.Println("bytes arrived")
}
