/* softnd.h: RDMA semantics over shared memory, for C and C++.
 *
 * A process joins an arena with snd_fabric_open, snd_fabric_attach or snd_job_init, and opens an
 * adapter. The adapter makes all other objects. The model is NetworkDirect's; statuses and flags have
 * its numbers.
 *
 * Every call checks its handle. A call on NULL, on a closed object or on an object of another type
 * returns SND_INVALID_HANDLE. (The handle of a closed object may be that of a new one after 1,024 further objects of
 * the type were closed.) In a forked child every call on a handle of its parent returns SND_DEVICE_REMOVED and touches
 * nothing shared, or SND_INVALID_HANDLE once the child has joined an arena itself. After a failure, snd_last_error says in words what was wrong. A call that makes an object stores NULL
 * for its handle if it fails, unless it refuses another handle, a pointer or a name that it was passed.
 *
 * Threads. The objects of one fabric form a domain. With SND_THREAD_SAFE, the default, any number of
 * threads may call at once. With SND_THREAD_DOMAIN the program makes at most one call at a time on the
 * objects of a fabric. Different fabrics are independent.
 *
 * With SND_THREAD_SAFE a thread may close a handle while other threads use it. Calls that wait on the
 * handle then return SND_CANCELED, and calls that begin later SND_INVALID_HANDLE. If several calls close
 * one handle at once, one of them succeeds and the others return SND_INVALID_HANDLE. The same holds for
 * snd_fabric_close and snd_job_close, and all objects of the fabric: they block until those calls have
 * returned. The collective calls of a rank are made one after the other.
 *
 * No call changes errno. None is a point at which a thread can be canceled: pthread_cancel takes effect after the call. A call must not be made
 * with PTHREAD_CANCEL_ASYNCHRONOUS.
 *
 * Signals. The library installs no handler, sends no signal, and leaves the signal masks of the program's
 * threads as they are. A handler may run at any time, with or without SA_RESTART and SA_ONSTACK. It may call no
 * function of the library.
 *
 * Children. fork with exec, vfork, posix_spawn, system and popen work at any time, in any thread. Every
 * descriptor of the library is closed on exec. A child of fork without exec may join an arena itself. It drops what it has
 * inherited: the handles, and the memory of their arenas.
 *
 * Times are in nanoseconds. 0 is no time: the call only checks. SND_FOREVER is no limit, and in snd_fabric_set_timeouts SND_DEFAULT_TIMEOUT
 * is the default. Calls refuse other negative times.
 *
 * Members named reserved are 0. Calls refuse structures in which they are not.
 *
 * Structures that can grow. A later version may append members to snd_fabric_options, snd_adapter_info, snd_srq_config,
 * snd_endpoint_config, snd_connect_params, snd_endpoint_stats and snd_cq_stats. Set them to zero or by designated initialisers: 0 in a new member
 * is what older programs get. A call that takes one of them has its size as first argument, which a macro of the same name adds:
 * programs in C and C++ leave it out. Programs that load the library with dlsym, and those that define SND_EXPLICIT_SIZES, as cgo
 * needs, pass it. A call
 * refuses a structure that is larger than the one it knows if a byte beyond that is not 0, and one whose size is 0 or above 4096;
 * calls that store one store the members that fit, and 0 beyond those that they know. All other structures keep their members.
 */
#ifndef SOFTND_SOFTND_H
#define SOFTND_SOFTND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SND_API __attribute__((visibility("default")))
#define SND_NORETURN __attribute__((noreturn))
#else
#define SND_API
#define SND_NORETURN
#endif

#define SND_FOREVER INT64_C(-1)
#define SND_DEFAULT_TIMEOUT INT64_C(-2)

/* Statuses. The top bit is set for every failure. */
typedef uint32_t snd_status;

#define SND_SUCCESS UINT32_C(0x00000000)
#define SND_BUFFER_OVERFLOW UINT32_C(0x80000005)
#define SND_DEVICE_BUSY UINT32_C(0x80000011)
#define SND_NO_MORE_ENTRIES UINT32_C(0x8000001A)
#define SND_UNSUCCESSFUL UINT32_C(0xC0000001)
#define SND_ACCESS_VIOLATION UINT32_C(0xC0000005)
#define SND_INVALID_HANDLE UINT32_C(0xC0000008)
#define SND_INVALID_PARAMETER UINT32_C(0xC000000D)
#define SND_INVALID_DEVICE_REQUEST UINT32_C(0xC0000010)
#define SND_NO_MEMORY UINT32_C(0xC0000017)
#define SND_DATA_OVERRUN UINT32_C(0xC000003C)
#define SND_DATA_ERROR UINT32_C(0xC000003E) /* on some hardware, and by fault plans */
#define SND_SHARING_VIOLATION UINT32_C(0xC0000043)
#define SND_INSUFFICIENT_RESOURCES UINT32_C(0xC000009A)
#define SND_IO_TIMEOUT UINT32_C(0xC00000B5)
#define SND_NOT_SUPPORTED UINT32_C(0xC00000BB)
#define SND_BAD_NETWORK_NAME UINT32_C(0xC00000CC)
#define SND_INTERNAL_ERROR UINT32_C(0xC00000E5)
#define SND_CANCELED UINT32_C(0xC0000120)
#define SND_REMOTE_ERROR UINT32_C(0xC000013D)
#define SND_INVALID_ADDRESS UINT32_C(0xC0000141)
#define SND_INVALID_DEVICE_STATE UINT32_C(0xC0000184)
#define SND_INVALID_BUFFER_SIZE UINT32_C(0xC0000206)
#define SND_TOO_MANY_ADDRESSES UINT32_C(0xC0000209)
#define SND_CONNECTION_DISCONNECTED UINT32_C(0xC000020C)
#define SND_CONNECTION_REFUSED UINT32_C(0xC0000236)
#define SND_ADDRESS_ALREADY_ASSOCIATED UINT32_C(0xC0000238)
#define SND_CONNECTION_INVALID UINT32_C(0xC000023A)
#define SND_CONNECTION_ACTIVE UINT32_C(0xC000023B)
#define SND_NETWORK_UNREACHABLE UINT32_C(0xC000023C)
#define SND_HOST_UNREACHABLE UINT32_C(0xC000023D)
#define SND_CONNECTION_ABORTED UINT32_C(0xC0000241)
#define SND_DEVICE_REMOVED UINT32_C(0xC00002B6)
#define SND_DATA_CHECKSUM_ERROR UINT32_C(0xC0000470)

/* snd_status_name returns the name of a status, such as "access violation". It never returns NULL. */
SND_API const char *snd_status_name(snd_status status);

/* snd_last_error returns the text of the latest failure of a call in this thread, and "" before the
 * first. The text stays valid until the next failure in this thread. A failed result is no failure of a
 * call: snd_endpoint_error returns its cause. */
SND_API const char *snd_last_error(void);

/* snd_version returns the version of the library, such as "0.1.0". */
SND_API const char *snd_version(void);

/* Handles of objects. */
typedef struct snd_fabric snd_fabric;
typedef struct snd_adapter snd_adapter;
typedef struct snd_mr snd_mr;
typedef struct snd_window snd_window;
typedef struct snd_mapping snd_mapping;
typedef struct snd_cq snd_cq;
typedef struct snd_srq snd_srq;
typedef struct snd_endpoint snd_endpoint;
typedef struct snd_connector snd_connector;
typedef struct snd_listener snd_listener;
typedef struct snd_job snd_job;

/* snd_address names an adapter of the job, and a port of it. host is an address of the loopback
 * network that softnd gives to each member; the host's network does not use it. */
typedef struct snd_address {
	uint32_t host; /* 0: any, in snd_listener_bind and snd_connector_bind */
	uint16_t port; /* 0: any free port */
	uint16_t reserved;
} snd_address;

/* Fabric: this process's membership in an arena. */

typedef enum snd_threading { SND_THREAD_SAFE = 0, SND_THREAD_DOMAIN = 1 } snd_threading;

/* With SND_PROGRESS_AUTO, the default, the library has two threads. "softnd" makes progress while the program
 * neither polls nor waits. "softnd-watch" reports the end of processes and answers joiners. Both block all
 * signals, and sleep while nothing is under way.
 * With SND_PROGRESS_MANUAL the library has no thread for it: the calls of the program make progress. A call
 * that waits wakes 10 times a second to look for dead peers, and 50 times in a named fabric.
 * With either, a job at SOFTND_ROOT has the thread "softnd-meeting", and rank 0 also "softnd-root". */
typedef enum snd_progress_model { SND_PROGRESS_AUTO = 0, SND_PROGRESS_MANUAL = 1 } snd_progress_model;

/* snd_executor selects the process that copies the bytes of one-sided requests and long messages. */
typedef enum snd_executor { SND_EXECUTOR_AUTO = 0, SND_EXECUTOR_TARGET = 1 } snd_executor;

#define SND_NO_SPIN UINT32_C(4294967295)

typedef struct snd_fabric_options {
	snd_threading threading;
	snd_progress_model progress;
	snd_executor executor;
	uint32_t check_payloads; /* 1: all endpoints have check_payloads */
	uint64_t weak_order_seed;
	uint32_t weak_order; /* 1: delay and reorder requests as hardware may, to find programs that rely on more order. docs/weak-order.md */
	uint32_t spin_budget; /* checks of a blocking call before it yields its core and sleeps; 0: at most 500 and adapted, SND_NO_SPIN: none */
	uint32_t count_operations; /* 1: count results and bytes by type, see snd_operation_stats. Small requests and messages take longer */
	uint32_t exit_with_job; /* 1: the process ends when another rank has ended the job, and no launcher ends it; see snd_job_wait_end */
} snd_fabric_options;

/* snd_fabric_create makes a new arena with a group of ranks (0: none) and joins it without a rank.
 * size is in bytes of address space; 0 is the size of the machine's memory. options may be NULL. */
SND_API snd_status snd_fabric_create(size_t options_size, uint32_t ranks, uint64_t size, const snd_fabric_options *options,
	snd_fabric **fabric);
/* snd_fabric_attach joins the arena behind a descriptor, as rank (-1: none). The caller keeps the descriptor. */
SND_API snd_status snd_fabric_attach(size_t options_size, int descriptor, int32_t rank, const snd_fabric_options *options, snd_fabric **fabric);
/* snd_fabric_open joins the current user's fabric of a name. If there is none, it creates the fabric with a
 * group of ranks and a size. name has 1 to 64 characters of A-Z a-z 0-9 . _ and -. Joiners are answered by
 * the members that poll, wait or have SND_PROGRESS_AUTO. If none answers in 10 s, it fails with SND_IO_TIMEOUT. */
SND_API snd_status snd_fabric_open(size_t options_size, const char *name, uint32_t ranks, uint64_t size, int32_t rank,
	const snd_fabric_options *options, snd_fabric **fabric);
/* snd_fabric_descriptor returns the descriptor of the arena, for other processes, or -1. */
SND_API int snd_fabric_descriptor(snd_fabric *fabric);
/* snd_fabric_address returns the address of this member, with port 0. */
SND_API snd_address snd_fabric_address(snd_fabric *fabric);
/* snd_fabric_set_timeouts sets the time limits of what the endpoints of the fabric do by themselves. A Send waits receive for a receive
 * of the peer, by default 2 s, or SOFTND_RECEIVE_TIMEOUT in a job. A disconnect waits disconnect for that of the peer, by default 10 s.
 * They hold for Sends that already wait, and for disconnects that begin later. */
SND_API snd_status snd_fabric_set_timeouts(snd_fabric *fabric, int64_t receive, int64_t disconnect);
/* snd_fabric_event_fd returns a descriptor, for poll and epoll, that becomes readable with an event of connections: a listener has a
 * request, a call that the program has started can be finished, or an established connection has ended. Read it, then call
 * snd_listener_request, snd_connector_finish and snd_connector_wait_disconnect with the time limit 0, if they have one, until they
 * have nothing, then wait again. The descriptor belongs to the fabric. It needs SND_PROGRESS_AUTO. */
SND_API snd_status snd_fabric_event_fd(snd_fabric *fabric, int *descriptor);
/* Types of events. */
#define SND_EVENT_CONNECTED 1u
#define SND_EVENT_DISCONNECTED 2u /* a connection has ended in order */
#define SND_EVENT_FAILED 3u /* a connection has ended otherwise */
#define SND_EVENT_PEER_DIED 4u /* once for each process */
#define SND_EVENT_REQUEST_WAITS 5u /* the oldest request of an endpoint has waited for longer than a Send may, or 2 s if that has no limit */
#define SND_EVENT_OVERRUN 6u /* a completion queue has overrun */
#define SND_EVENT_DROPPED 7u /* events were lost, because the handler was slower */

/* snd_event is an event of a connection or queue. Members that its type does not use are 0. A later version may append members. */
typedef struct snd_event {
	uint32_t type; /* SND_EVENT_CONNECTED and so on */
	uint32_t by_peer; /* of an end: 1: the peer has ended the connection, or has died */
	uint64_t number; /* of the endpoint or queue, as in its counters; of SND_EVENT_DROPPED: of lost events */
	uint64_t endpoint_context;
	uint64_t request_context; /* of SND_EVENT_REQUEST_WAITS */
	int64_t waited; /* likewise, in nanoseconds */
	snd_status status; /* of SND_EVENT_FAILED */
	uint32_t depth; /* of the queue of SND_EVENT_OVERRUN */
	char peer[64]; /* the process at the other side */
	char text[384]; /* the cause, or what the request waits for */
} snd_event;

typedef void (*snd_event_handler)(void *arg, const snd_event *event);

/* snd_fabric_set_event_handler has a thread of the library, softnd-events, call a function for each event of the fabric's connections and
 * queues from now on, one after the other. event is valid until the handler returns. The thread holds no lock, and blocks all signals: the
 * handler may block, and may call any function of the library. With SND_THREAD_DOMAIN it counts as a thread of the program. While it
 * blocks, the library keeps up to 1,024 events, and drops and counts more. snd_fabric_close and snd_job_close wait until it has handled all
 * events, for at most a second, and not at all within the handler; a handler that blocks for longer is still called for the rest, so arg
 * must outlive that. A fabric has one handler: a further call fails with
 * SND_INVALID_DEVICE_STATE. A side that closes an endpoint in order has SND_EVENT_DISCONNECTED, and so has its peer if neither has a request
 * outstanding. Otherwise the peer has SND_EVENT_FAILED. Calls that fail make no event. */
SND_API snd_status snd_fabric_set_event_handler(snd_fabric *fabric, snd_event_handler handler, void *arg);
/* snd_fabric_publish gives an address, such as that of a listener, a name by which snd_fabric_lookup finds it in all processes of the
 * fabric, also in Go (Job.LookupName). The name has 1 to 64 characters out of A-Z a-z 0-9 . _ and -. It ends with
 * snd_fabric_withdraw, snd_fabric_close, or the process. SND_SHARING_VIOLATION: a process of the fabric has the name; of two that publish
 * it at the same time, both can get this. SND_INSUFFICIENT_RESOURCES: this process has 16 names. */
SND_API snd_status snd_fabric_publish(snd_fabric *fabric, const char *name, snd_address address);
/* snd_fabric_withdraw ends a name that this process has published. SND_INVALID_PARAMETER: there is none. */
SND_API snd_status snd_fabric_withdraw(snd_fabric *fabric, const char *name);
/* snd_fabric_lookup stores the address behind a name. It waits until a process has published the name. After a failure the address is 0.
 * SND_IO_TIMEOUT: no process has. */
SND_API snd_status snd_fabric_lookup(snd_fabric *fabric, const char *name, int64_t timeout, snd_address *address);
/* snd_fabric_progress makes progress on all objects of the fabric. */
SND_API snd_status snd_fabric_progress(snd_fabric *fabric);
/* snd_fabric_close ends all connections and leaves the arena. All objects of the fabric are closed.
 * It fails with SND_DEVICE_BUSY if the fabric belongs to a job: snd_job_close closes that. */
SND_API snd_status snd_fabric_close(snd_fabric *fabric);

/* Adapter: a protection domain. Objects of two adapters cannot be used together. */

/* snd_adapter_info has the limits of an adapter. Lengths are in bytes, depths are numbers of outstanding requests, and a value equal to
 * a limit is allowed. */
typedef struct snd_adapter_info {
	uint64_t adapter_id; /* no other member of the arena has it */
	uint64_t max_registration; /* of one region */
	uint64_t max_window;
	uint64_t max_transfer; /* of all entries of one request together */
	uint32_t max_initiator_sge; /* entries of a Send or Write */
	uint32_t max_receive_sge;
	uint32_t max_read_sge;
	uint32_t max_inline; /* of one request with SND_INLINE */
	uint32_t max_inbound_reads; /* Reads of the peer that may run at once, of each endpoint */
	uint32_t max_outbound_reads; /* Reads of this side that may run at once; further Reads wait */
	uint32_t max_receive_depth; /* of an endpoint */
	uint32_t max_initiator_depth; /* of an endpoint */
	uint32_t max_srq_depth;
	uint32_t max_cq_depth; /* in results */
	uint32_t inline_threshold; /* up to this length, a request is expected to be faster with SND_INLINE */
	uint32_t large_threshold; /* from this length on, Reads and Writes are expected to be faster than Sends */
	uint32_t max_caller_data; /* private data of snd_connector_connect */
	uint32_t max_callee_data; /* private data of snd_connector_accept and snd_connector_reject */
	uint16_t vendor_id; /* 0: no vendor */
	uint16_t device_id;
	uint32_t max_inter_host_connections; /* to other hosts, of all processes of this host together; 0 if no other host can be reached */
	uint32_t flags; /* SND_ADAPTER_IN_ORDER_DMA and so on */
	uint32_t reserved;
} snd_adapter_info;

#define SND_ADAPTER_IN_ORDER_DMA 0x1u /* the last byte of a transfer becomes visible after all its other bytes */
#define SND_ADAPTER_READ_SINK_NOT_REQUIRED 0x2u /* SND_RDMA_READ_SINK has no effect */
#define SND_ADAPTER_INTERRUPT_MODERATION 0x4u /* snd_cq_moderate is supported */
#define SND_ADAPTER_MULTI_ENGINE 0x8u /* several connections make progress at the same time */
#define SND_ADAPTER_READ_LOCAL_INVALIDATE 0x10u /* SND_READ_LOCAL_INVALIDATE has an effect */
#define SND_ADAPTER_CQ_RESIZE 0x100u /* snd_cq_resize is supported */
#define SND_ADAPTER_LOOPBACK 0x10000u /* an address of the adapter can connect to itself */
#define SND_ADAPTER_ATOMICS 0x20000u /* snd_endpoint_fetch_and_add, snd_endpoint_compare_and_swap and snd_endpoint_swap are supported */
#define SND_ADAPTER_IMMEDIATE 0x40000u /* snd_endpoint_send_immediate and snd_endpoint_write_immediate are supported */
#define SND_ADAPTER_PLACEMENT 0x80000u /* SND_HUGE_PAGES, SND_PREFAULT, SND_ON_NODE and SND_REQUIRE_PLACEMENT are supported */

/* snd_adapter_open opens an adapter of a fabric. All other objects are made from an adapter. */
SND_API snd_status snd_adapter_open(snd_fabric *fabric, snd_adapter **adapter);
/* snd_adapter_query stores the limits of an adapter. */
SND_API snd_status snd_adapter_query(size_t info_size, snd_adapter *adapter, snd_adapter_info *info);
/* snd_adapter_close closes an adapter and all its objects, as their own calls do, and blocks until no peer uses the memory; see
 * snd_mr_close. It fails with SND_DEVICE_BUSY for the adapter of a job: snd_job_close closes that. During the call other calls on the
 * adapter fail with SND_INVALID_HANDLE. After a failure the handle is valid again, unless the fabric was closed. */
SND_API snd_status snd_adapter_close(snd_adapter *adapter, int64_t timeout);

/* Memory regions. */

/* Flags of regions. This process may always read. */
#define SND_ALLOW_LOCAL_WRITE 0x1u
#define SND_ALLOW_REMOTE_READ 0x2u
#define SND_ALLOW_REMOTE_WRITE 0x5u /* implies SND_ALLOW_LOCAL_WRITE */
#define SND_ALLOW_REMOTE_ATOMIC 0x10001u /* implies SND_ALLOW_LOCAL_WRITE */
#define SND_RDMA_READ_SINK 0x8u /* of NetworkDirect: without effect, since every region may be the sink of a Read */
#define SND_DO_NOT_SECURE_VM 0x80000000u /* of NetworkDirect: without effect */

/* Placement of the memory of regions. Each flag is a wish. If the machine cannot fulfil it, the call succeeds all the same, and
 * snd_mr_placement lacks the flag. With SND_REQUIRE_PLACEMENT the call fails with SND_NOT_SUPPORTED instead, and snd_last_error says why.
 * snd_mr_allocate takes all of them, snd_mr_register takes SND_PREFAULT and SND_REQUIRE_PLACEMENT. SND_ON_NODE is the flag for memory of a
 * NUMA node. Without it, the memory is of the node of the calling thread's processor, unless that has too little. The kernel may move pages
 * later. No machine has nodes with other numbers than 0 to 1021. */
#define SND_HUGE_PAGES 0x20000u /* the memory is in huge pages, and takes up whole ones */
#define SND_PREFAULT 0x40000u /* fills the page tables of this process: its first access of each page takes no page fault */
#define SND_REQUIRE_PLACEMENT 0x80000u
#define SND_ON_NODE(node) ((((uint32_t)(node) > 1022u ? 1022u : (uint32_t)(node)) + 1u) << 20)

/* snd_sge is an entry of a scatter/gather list. */
typedef struct snd_sge {
	void *buffer;
	uint32_t length;
	uint32_t token; /* local token of the region that contains the buffer */
} snd_sge;

/* snd_mr_allocate makes a region of arena memory, which peers reach with one copy. The memory is zero. Its address is a
 * multiple of 64. */
SND_API snd_status snd_mr_allocate(snd_adapter *adapter, uint64_t length, uint32_t flags, snd_mr **mr);
/* snd_mr_register makes a region of any memory of the process. The process must be able to read the memory, and to write
 * it if flags allow any writes: the call fails with SND_ACCESS_VIOLATION otherwise, and names the range. It touches no page
 * of the memory. Until snd_mr_close, the program must not unmap the memory, take these rights away, or truncate a mapped
 * file: a request of a peer would crash the process. The call does not find pages beyond the end of a mapped file, nor guards of
 * MADV_GUARD_INSTALL.
 *
 * The memory may be a part of snd_mr_buffer of an allocated region. Peers reach it with one copy, as they reach that region, and
 * it stays allocated until both regions are closed. That region may be of another job or fabric of the process. The memory keeps its
 * content when that one is closed, except for a write in progress during that call. Only this process can copy to or from other
 * memory. */
SND_API snd_status snd_mr_register(snd_adapter *adapter, void *buffer, uint64_t length, uint32_t flags, snd_mr **mr);
/* snd_mr_buffer returns the first byte of a region, NULL for a bad handle. */
SND_API void *snd_mr_buffer(snd_mr *mr);
/* snd_mr_length returns the length of a region in bytes, 0 for a bad handle. */
SND_API uint64_t snd_mr_length(snd_mr *mr);
/* snd_mr_placement returns those of SND_HUGE_PAGES, SND_PREFAULT and SND_ON_NODE that the memory was given, 0 for a bad handle. */
SND_API uint32_t snd_mr_placement(snd_mr *mr);
/* snd_mr_address returns the address of the first byte, for requests of peers. */
SND_API uint64_t snd_mr_address(snd_mr *mr);
/* snd_mr_local_token returns the token for scatter/gather entries of this process, 0 for a bad handle. */
SND_API uint32_t snd_mr_local_token(snd_mr *mr);
/* snd_mr_remote_token returns the token for requests of peers, 0 for a bad handle. It gives the access
 * that the flags of the region allow. */
SND_API uint32_t snd_mr_remote_token(snd_mr *mr);
/* snd_mr_sge returns an entry for length bytes of a region, from offset on. After a failure the entry has no buffer, and each post refuses
 * it with SND_INVALID_PARAMETER: the bytes are not in the region, or more than 4 GiB - 1, or the handle is bad. */
SND_API snd_sge snd_mr_sge(snd_mr *mr, uint64_t offset, size_t length);
/* snd_mr_close ends the registration. It frees the memory of snd_mr_allocate, unless another region covers a part of it: then
 * the memory is freed when the last such region is closed. The call blocks until no peer uses the memory. It fails with
 * SND_DEVICE_BUSY while a window is bound to the region, or a logical mapping lists its pages. It fails with SND_IO_TIMEOUT
 * when the time has passed. The tokens are invalid then, and the handle stays valid, so that the call can be repeated. */
SND_API snd_status snd_mr_close(snd_mr *mr, int64_t timeout);

/* Memory windows. */

typedef struct snd_window_descriptor {
	uint64_t address;
	uint64_t length;
	uint32_t token;
	uint32_t reserved;
} snd_window_descriptor;

#define SND_WINDOW_DESCRIPTOR_SIZE 20

/* snd_window_create makes a window. Requests bind and invalidate it. */
SND_API snd_status snd_window_create(snd_adapter *adapter, snd_window **window);
/* snd_window_query returns address, length and token of the latest bind. */
SND_API snd_status snd_window_query(snd_window *window, snd_window_descriptor *descriptor);
/* snd_mr_query returns the descriptor of a region with its remote token. */
SND_API snd_status snd_mr_query(snd_mr *mr, snd_window_descriptor *descriptor);
/* snd_window_descriptor_encode stores a descriptor as 20 bytes, which are the same in every language. */
SND_API void snd_window_descriptor_encode(const snd_window_descriptor *descriptor, uint8_t bytes[SND_WINDOW_DESCRIPTOR_SIZE]);
/* snd_window_descriptor_decode reads a descriptor from 20 bytes. */
SND_API void snd_window_descriptor_decode(const uint8_t bytes[SND_WINDOW_DESCRIPTOR_SIZE], snd_window_descriptor *descriptor);
/* snd_window_close invalidates the window if it is bound, and blocks until no peer uses it; see snd_mr_close. */
SND_API snd_status snd_window_close(snd_window *window, int64_t timeout);

/* Fast registration. A request registers pages of memory as a region, and a request ends the registration. Peers
 * see the pages as one range of addresses. */

#define SND_PAGE_SIZE 4096u

/* snd_mapping_create makes a logical mapping: a list of the pages of length bytes at buffer, a part of mr. The
 * memory of mr must be of snd_mr_allocate. */
SND_API snd_status snd_mapping_create(snd_mr *mr, void *buffer, uint64_t length, snd_mapping **mapping);
/* snd_mapping_pages stores up to capacity pages, in the order of the buffer. It returns the number of all pages. */
SND_API uint32_t snd_mapping_pages(snd_mapping *mapping, uint64_t *pages, uint32_t capacity);
/* snd_mapping_offset returns the offset of the buffer in the first page. */
SND_API uint32_t snd_mapping_offset(snd_mapping *mapping);
/* snd_mapping_close blocks until no peer uses the memory with the privileged token; see snd_mr_close. It fails with
 * SND_DEVICE_BUSY while a fast registration uses its pages. */
SND_API snd_status snd_mapping_close(snd_mapping *mapping, int64_t timeout);
/* snd_adapter_privileged_token stores a local token for the memory of all open mappings of the adapter. Each entry
 * of a scatter/gather list with it must be within one mapping. Peers cannot use it. */
SND_API snd_status snd_adapter_privileged_token(snd_adapter *adapter, uint32_t *token);
/* snd_mr_create_fast makes a region without memory, for registrations of up to pages pages; at most 4096. Without
 * remote, they cannot have remote rights. snd_mr_address and snd_mr_length return those of the registration
 * that was posted last, and snd_mr_buffer returns NULL. */
SND_API snd_status snd_mr_create_fast(snd_adapter *adapter, uint32_t pages, int remote, snd_mr **mr);

typedef struct snd_fast_registration {
	const uint64_t *pages; /* of open mappings of the adapter, in any order */
	uint32_t page_count;
	uint32_t offset; /* of the first byte of the region in the pages */
	uint64_t length;
	uint64_t address; /* by which peers name the first byte; not 0 */
	uint32_t rights; /* flags of regions */
	uint32_t reserved;
} snd_fast_registration;

/* Completion queues. */

/* Types of requests and results. */
#define SND_REQUEST_RECEIVE 0u
#define SND_REQUEST_SEND 1u
#define SND_REQUEST_BIND 2u
#define SND_REQUEST_INVALIDATE 3u
#define SND_REQUEST_READ 4u
#define SND_REQUEST_WRITE 5u
#define SND_REQUEST_RECEIVE_AND_INVALIDATE 0x8001u
#define SND_REQUEST_FAST_REGISTER 0x8002u
#define SND_REQUEST_FETCH_AND_ADD 0x8003u
#define SND_REQUEST_COMPARE_AND_SWAP 0x8004u
#define SND_REQUEST_SWAP 0x8005u
#define SND_REQUEST_RECEIVE_IMMEDIATE 0x8006u /* a message of snd_endpoint_send_immediate */
#define SND_REQUEST_RECEIVE_WRITE_IMMEDIATE 0x8007u /* taken by snd_endpoint_write_immediate */

/* snd_result is the end of a request. It never grows, as snd_sge and snd_request do not: queues and lists consist of them. If it has failed, so has its endpoint: the results of later requests are
 * SND_CANCELED, and snd_endpoint_error returns the cause in words. */
typedef struct snd_result {
	snd_status status;
	uint32_t bytes; /* of the message, Read or Write; 8 of an atomic */
	uint64_t endpoint_context; /* of snd_endpoint_config */
	uint64_t request_context;  /* of the post */
	uint32_t type;             /* SND_REQUEST_RECEIVE and so on */
	uint32_t invalidated_token; /* of SND_REQUEST_RECEIVE_AND_INVALIDATE; of the last two types, the immediate data */
} snd_result;

/* Types of results that end snd_cq_notify. */
#define SND_NOTIFY_ERRORS 0u
#define SND_NOTIFY_ANY 1u
#define SND_NOTIFY_SOLICITED 2u /* errors, and messages that were sent with SND_SOLICIT_EVENT */

/* snd_cq_create makes a completion queue for depth results. */
SND_API snd_status snd_cq_create(snd_adapter *adapter, uint32_t depth, snd_cq **cq);
/* snd_cq_poll takes up to count results and returns their number. A negative number is a snd_status as int32_t, and no result was taken:
 * SND_BUFFER_OVERFLOW if the queue has overrun and has no results left, SND_INVALID_HANDLE, SND_INVALID_PARAMETER or SND_DEVICE_REMOVED.
 * It makes progress on the endpoints of the queue, also with count 0. It never blocks. With SND_PROGRESS_MANUAL it is polling that
 * detects the end of a connection, however rarely the program polls. */
SND_API int32_t snd_cq_poll(snd_cq *cq, snd_result *results, uint32_t count);
/* snd_cq_wait blocks until there is a result, and takes results like snd_cq_poll. It fails with SND_IO_TIMEOUT,
 * SND_CANCELED (the queue or the fabric was closed, or the call was cancelled) or SND_BUFFER_OVERFLOW (the queue has overrun). */
SND_API snd_status snd_cq_wait(snd_cq *cq, snd_result *results, uint32_t count, int64_t timeout, uint32_t *taken);
/* snd_cq_wait_one takes one result. If the request has failed, the call returns why: the status of snd_endpoint_error, with its
 * text, or the status of the result if endpoint is NULL or has not failed. result may be NULL. When the endpoint ends and the queue
 * gets no further result of it, as after a disconnect of the peer, the call returns the status of snd_endpoint_error, or SND_CANCELED if
 * the endpoint was closed. After a disconnect of the peer, the receives stay outstanding. Without an endpoint the call waits on. */
SND_API snd_status snd_cq_wait_one(snd_cq *cq, snd_endpoint *endpoint, int64_t timeout, snd_result *result);
/* snd_cq_notify blocks until a result of a type, such as SND_NOTIFY_ANY, is queued, and takes none. The
 * result ends all calls that wait at that time; a later call considers newer results only. */
SND_API snd_status snd_cq_notify(snd_cq *cq, uint32_t type, int64_t timeout);
/* snd_cq_event_fd returns a descriptor that becomes readable with a result, for poll and epoll. Read it,
 * then poll the queue until it is empty, then wait again. The descriptor belongs to the queue. It needs
 * SND_PROGRESS_AUTO. */
SND_API snd_status snd_cq_event_fd(snd_cq *cq, int *descriptor);
/* snd_cq_moderate delays the events that end snd_cq_notify and make the event descriptor readable. They wait
 * until count results are queued, or the oldest of these is interval nanoseconds old. A negative value leaves the
 * decision to the other one. An interval of 0 or a count below 2 ends the moderation. A failed result raises
 * its event at once. */
SND_API snd_status snd_cq_moderate(snd_cq *cq, int64_t interval, int32_t count);
/* snd_cq_notify_affinity stores the processors that serve notifications: the number of a group of 64, and a mask. */
SND_API snd_status snd_cq_notify_affinity(snd_cq *cq, uint16_t *group, uint64_t *mask);
/* snd_cq_resize changes the depth. The queue loses no result. */
SND_API snd_status snd_cq_resize(snd_cq *cq, uint32_t depth);
/* snd_cq_cancel ends the calls of other threads that wait on the queue, with SND_CANCELED. Later calls wait. */
SND_API snd_status snd_cq_cancel(snd_cq *cq);
/* snd_operation_count counts the results of one type. */
typedef struct snd_operation_count {
	uint64_t succeeded;
	uint64_t failed; /* with another status than SND_SUCCESS, SND_CANCELED included */
	uint64_t bytes; /* that the successful requests transferred */
} snd_operation_count;

/* snd_operation_stats counts results by type, if the fabric has count_operations. Otherwise all numbers are 0. It never grows. */
typedef struct snd_operation_stats {
	snd_operation_count send;
	snd_operation_count write;
	snd_operation_count read;
	snd_operation_count bind;
	snd_operation_count invalidate;
	snd_operation_count fast_register;
	snd_operation_count atomic;
	snd_operation_count receive;
} snd_operation_stats;

/* snd_cq_stats has the counters of a completion queue since its creation. */
typedef struct snd_cq_stats {
	uint64_t number; /* of the queue in its process */
	uint64_t depth;
	uint64_t queued; /* results in the queue now */
	uint64_t results; /* added to the queue; a small message may bypass the queue, and is then not counted */
	uint64_t polls; /* checks for results by all calls, approximate */
	uint64_t overrun; /* 1: a result was lost because the queue was full */
	snd_operation_stats operations;
} snd_cq_stats;

/* snd_cq_get_stats stores the counters of a completion queue. */
SND_API snd_status snd_cq_get_stats(size_t stats_size, snd_cq *cq, snd_cq_stats *stats);
/* snd_cq_close discards the queued results and ends all waits. Endpoints may still use the queue: their
 * results are lost. */
SND_API snd_status snd_cq_close(snd_cq *cq);

/* Shared receive queues: receives for several endpoints. */

typedef struct snd_srq_config {
	uint32_t depth; /* receives that are outstanding; default 64, at most 4096 */
	uint32_t max_sge; /* entries of a receive; default 4, at most 16 */
	uint32_t threshold; /* of snd_srq_notify, at most depth; 0: none */
	uint32_t reserved;
} snd_srq_config;

/* snd_request is a request of a list. Members that its type does not use are 0. */
typedef struct snd_request {
	uint32_t type; /* SND_REQUEST_RECEIVE, or that of an initiator request */
	uint32_t flags;
	uint64_t context;
	const snd_sge *sge;
	uint32_t count;
	uint32_t token; /* of a Write, Read or atomic: that of address; of a Send: the peer's token to invalidate, 0 = none */
	uint64_t address; /* in the peer's memory; of a bind: the buffer */
	uint64_t length; /* of a bind */
	uint64_t operand; /* of an atomic: the number to add, to compare with, or to store */
	uint64_t swap; /* of SND_REQUEST_COMPARE_AND_SWAP: the number to store */
	uint32_t has_immediate; /* 1: a Send or Write with immediate data */
	uint32_t immediate;
	snd_mr *mr; /* of a bind or fast registration, or to invalidate */
	snd_window *window; /* of a bind, or to invalidate */
	const snd_fast_registration *registration;
} snd_request;

/* snd_srq_create makes a shared receive queue. */
SND_API snd_status snd_srq_create(size_t config_size, snd_adapter *adapter, const snd_srq_config *config, snd_srq **srq);
/* snd_srq_receive posts a receive for one message to any endpoint of the queue. See
 * snd_endpoint_receive. */
SND_API snd_status snd_srq_receive(snd_srq *srq, uint64_t context, const snd_sge *sge, uint32_t count);
/* snd_srq_post is snd_endpoint_post for receives. */
SND_API snd_status snd_srq_post(snd_srq *srq, const snd_request *requests, uint32_t count, uint32_t *posted);
/* snd_srq_notify blocks until fewer receives are outstanding than the threshold. */
SND_API snd_status snd_srq_notify(snd_srq *srq, int64_t timeout);
/* snd_srq_notify_affinity is snd_cq_notify_affinity. */
SND_API snd_status snd_srq_notify_affinity(snd_srq *srq, uint16_t *group, uint64_t *mask);
/* snd_srq_modify changes depth and threshold; 0 keeps a value. */
SND_API snd_status snd_srq_modify(snd_srq *srq, uint32_t depth, uint32_t threshold);
/* snd_srq_cancel is snd_cq_cancel. */
SND_API snd_status snd_srq_cancel(snd_srq *srq);
/* snd_srq_close ends all waits and refuses further receives. Posted ones still serve the endpoints. */
SND_API snd_status snd_srq_close(snd_srq *srq);

/* Endpoints: queue pairs. The posts return at once. A list of entries can be reused then. The buffers belong to the
 * request until its result was taken, except with SND_INLINE. Requests of an endpoint start in the order of the
 * posts, and their results arrive in this order. */

/* Flags of requests. */
#define SND_SILENT_SUCCESS 0x1u /* no result if the request succeeds; its slot is then free. The result of a later request says that it is done */
#define SND_READ_FENCE 0x2u /* after the data of all earlier Reads */
#define SND_SOLICIT_EVENT 0x4u /* the peer's result ends calls that wait for SND_NOTIFY_SOLICITED */
#define SND_ALLOW_READ 0x8u /* of a bind: peers may read */
#define SND_ALLOW_WRITE 0x10u /* of a bind: peers may write */
#define SND_INLINE 0x20u /* the post copies the data, up to inline_size; the buffers need no registration */
#define SND_READ_LOCAL_INVALIDATE 0x100u /* of a Read: its success ends the fast registration of its first entry */
#define SND_DEFER 0x200u /* the request may wait for the next post without this flag */
#define SND_THIS_ENDPOINT_ONLY 0x10000u /* of a bind: only the peer of this endpoint may use the window */
#define SND_ALLOW_ATOMIC 0x20000u /* of a bind: peers may change memory by atomics */

/* snd_endpoint_config configures an endpoint; 0 selects the default. */
typedef struct snd_endpoint_config {
	snd_cq *receive_cq;
	snd_cq *initiator_cq;
	snd_srq *srq; /* NULL: receives are posted to the endpoint */
	uint64_t context; /* in each result of the endpoint */
	uint32_t receive_depth; /* receives whose results were not taken; default 64 */
	uint32_t initiator_depth; /* requests whose results were not taken; default 64 */
	uint32_t max_receive_sge; /* default 4, at most 16 */
	uint32_t max_initiator_sge; /* default 4, at most 16 */
	uint32_t inline_size; /* bytes of a request with SND_INLINE: default 0, at most 1024 */
	uint32_t check_payloads; /* 1: Sends, Writes and Reads carry a hash; changed data ends in SND_DATA_CHECKSUM_ERROR */
} snd_endpoint_config;

/* snd_endpoint_create makes an endpoint that is not connected. */
SND_API snd_status snd_endpoint_create(size_t config_size, snd_adapter *adapter, const snd_endpoint_config *config,
	snd_endpoint **endpoint);
/* snd_endpoint_receive posts the buffers for one message, in any state of the connection. The message
 * fills the entries in order. With count 0 it is a receive for an empty message. Its result has the number of bytes, or SND_BUFFER_OVERFLOW if the message
 * was longer. */
SND_API snd_status snd_endpoint_receive(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count);
/* snd_endpoint_send posts a message for the oldest receive of the peer. It waits for a receive up to the
 * limit of snd_fabric_set_timeouts. With count 0 the message is empty; it uses a receive, too. flags are SND_SILENT_SUCCESS, SND_READ_FENCE, SND_SOLICIT_EVENT,
 * SND_INLINE and SND_DEFER. */
SND_API snd_status snd_endpoint_send(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count, uint32_t flags);
/* snd_endpoint_send_and_invalidate posts a message that also invalidates the peer's window with this
 * token. The peer's result is of type SND_REQUEST_RECEIVE_AND_INVALIDATE. */
SND_API snd_status snd_endpoint_send_and_invalidate(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count,
	uint32_t token, uint32_t flags);
/* snd_endpoint_write copies the entries to the peer's memory at address, if token allows it. flags are
 * SND_SILENT_SUCCESS, SND_READ_FENCE, SND_INLINE and SND_DEFER. */
SND_API snd_status snd_endpoint_write(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address,
	uint32_t token, uint32_t flags);
/* snd_endpoint_read copies from the peer's memory at address into the entries, if token allows it. flags
 * are SND_SILENT_SUCCESS, SND_READ_FENCE, SND_READ_LOCAL_INVALIDATE and SND_DEFER. */
SND_API snd_status snd_endpoint_read(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address,
	uint32_t token, uint32_t flags);
/* snd_endpoint_send_immediate is snd_endpoint_send, and the peer's result also has a number, in the place of the
 * invalidated token: its type is SND_REQUEST_RECEIVE_IMMEDIATE. The post fails with SND_NOT_SUPPORTED if the peer lacks
 * SND_ADAPTER_IMMEDIATE. */
SND_API snd_status snd_endpoint_send_immediate(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count,
	uint32_t immediate, uint32_t flags);
/* snd_endpoint_write_immediate is snd_endpoint_write, and when the bytes are in the peer's memory, it also completes the peer's
 * oldest receive with a number, in the place of the invalidated token. The type of that result is
 * SND_REQUEST_RECEIVE_WRITE_IMMEDIATE, and its bytes are the length of the write. The buffers of the receive are not touched, and
 * may be smaller. With count 0 the peer only gets the number. The request waits for a receive as snd_endpoint_send does. flags are
 * those of snd_endpoint_write and SND_SOLICIT_EVENT. The post fails with SND_NOT_SUPPORTED if the peer lacks
 * SND_ADAPTER_IMMEDIATE. */
SND_API snd_status snd_endpoint_write_immediate(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count,
	uint64_t address, uint32_t token, uint32_t immediate, uint32_t flags);
/* snd_endpoint_fetch_and_add adds a number to 8 bytes of the peer's memory at address, if token allows it, and stores what they were
 * before in the entry. There is exactly one entry, of 8 bytes, in a region with SND_ALLOW_LOCAL_WRITE. address is a multiple of 8.
 * Numbers are in host byte order, and wrap around.
 *
 * The access is atomic with respect to all atomics of all endpoints, and to atomic instructions of the peer's own program. It counts
 * as a Read: in the limits of snd_connect_params, and for SND_READ_FENCE. If the entry is refused, the number may have been added.
 * flags are SND_SILENT_SUCCESS, SND_READ_FENCE and SND_DEFER. The post fails with SND_NOT_SUPPORTED if the peer lacks
 * SND_ADAPTER_ATOMICS. */
SND_API snd_status snd_endpoint_fetch_and_add(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count,
	uint64_t address, uint32_t token, uint64_t add, uint32_t flags);
/* snd_endpoint_compare_and_swap is snd_endpoint_fetch_and_add, but stores swap if the 8 bytes equal compare. It has done so if the old
 * value is compare. */
SND_API snd_status snd_endpoint_compare_and_swap(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count,
	uint64_t address, uint32_t token, uint64_t compare, uint64_t swap, uint32_t flags);
/* snd_endpoint_swap is snd_endpoint_fetch_and_add, but stores value. */
SND_API snd_status snd_endpoint_swap(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address,
	uint32_t token, uint64_t value, uint32_t flags);
/* snd_endpoint_bind binds a window to length bytes at buffer, a part of mr. flags are SND_ALLOW_READ,
 * SND_ALLOW_WRITE, SND_ALLOW_ATOMIC, SND_THIS_ENDPOINT_ONLY, SND_SILENT_SUCCESS, SND_READ_FENCE and SND_DEFER. When the call returns,
 * snd_window_query has the new token, which a later request of this endpoint may carry to the peer. */
SND_API snd_status snd_endpoint_bind(snd_endpoint *endpoint, uint64_t context, snd_mr *mr, snd_window *window, void *buffer,
	uint64_t length, uint32_t flags);
/* snd_endpoint_invalidate ends the access through a window. When its result is in the queue, no process
 * accesses the memory through the window. flags are SND_SILENT_SUCCESS, SND_READ_FENCE and SND_DEFER. */
SND_API snd_status snd_endpoint_invalidate(snd_endpoint *endpoint, uint64_t context, snd_window *window, uint32_t flags);
/* snd_endpoint_fast_register registers pages in mr, of snd_mr_create_fast. The region has new tokens when the call
 * returns, for later requests of this endpoint. They are valid on every connection of the adapter. The registration
 * ends with snd_endpoint_invalidate_mr on this endpoint, and when the endpoint fails, disconnects or is closed. The
 * result is SND_INVALID_DEVICE_REQUEST if the region is still registered. */
SND_API snd_status snd_endpoint_fast_register(snd_endpoint *endpoint, uint64_t context, snd_mr *mr,
	const snd_fast_registration *registration, uint32_t flags);
/* snd_endpoint_invalidate_mr ends a fast registration. After its result no peer uses the memory. The result is
 * SND_INVALID_DEVICE_REQUEST while a window is bound to the region. */
SND_API snd_status snd_endpoint_invalidate_mr(snd_endpoint *endpoint, uint64_t context, snd_mr *mr, uint32_t flags);

/* snd_endpoint_post posts requests of any types in order, each as its own call does, until one is refused. It stores the number posted,
 * which is the index of the refused one, and returns the status of that. snd_last_error names the request. posted may be NULL. */
SND_API snd_status snd_endpoint_post(snd_endpoint *endpoint, const snd_request *requests, uint32_t count, uint32_t *posted);
/* snd_endpoint_wait_slot blocks until fewer than initiator_depth requests are outstanding. The next post then does not fail with
 * SND_NO_MORE_ENTRIES, unless another thread posts first. The call takes no results: a slot becomes free when another thread takes a
 * result, or when a request with SND_SILENT_SUCCESS succeeds. A program with one thread takes results instead, for example with
 * snd_cq_wait. Before it waits, the call submits the requests with SND_DEFER. It fails with SND_IO_TIMEOUT, or with SND_CANCELED if the
 * endpoint or the fabric is closed meanwhile. */
SND_API snd_status snd_endpoint_wait_slot(snd_endpoint *endpoint, int64_t timeout);
/* snd_endpoint_flush cancels everything outstanding and ends the connection. */
SND_API snd_status snd_endpoint_flush(snd_endpoint *endpoint, int64_t timeout);
/* snd_endpoint_error returns why the endpoint has left the connected state: SND_SUCCESS if it has not.
 * snd_last_error returns the cause in words. */
SND_API snd_status snd_endpoint_error(snd_endpoint *endpoint);
/* snd_endpoint_stats has the counters of an endpoint since its creation. */
typedef struct snd_endpoint_stats {
	uint64_t number; /* of the endpoint in its process */
	uint64_t requests_posted; /* initiator requests, of all types */
	uint64_t requests_completed;
	uint64_t requests_immediate; /* that completed within the call that posted them */
	uint64_t receives_posted; /* or taken from the shared receive queue */
	uint64_t receives_completed;
	uint64_t posts_refused; /* with SND_NO_MORE_ENTRIES */
	uint64_t accesses_refused; /* requests of either side that failed because of a token or a posted receive */
	uint64_t fragments; /* parts of requests whose data the peer copies */
	uint64_t retries; /* unsuccessful attempts to run a waiting request */
	uint64_t stalls_receive; /* requests that waited for a receive of the peer: receiver not ready (RNR) in verbs */
	uint64_t stalls_shared_receive; /* messages of the peer that waited for a receive in the shared receive queue */
	uint64_t stalls_queue; /* requests that waited for space in the queue to the peer */
	uint64_t stalls_order; /* requests that waited for Reads or atomics (SND_READ_FENCE or a limit), and Invalidates for earlier requests */
	uint64_t stalls_drain; /* Invalidates that waited for the end of a copy in progress */
	char state[32]; /* such as "connected" */
	char peer[64]; /* the process at the other side; empty until the endpoint is connected */
	snd_operation_stats operations; /* successes without a result included */
} snd_endpoint_stats;

/* snd_endpoint_get_stats stores the counters of an endpoint. A request that waits for two causes counts once for each. */
SND_API snd_status snd_endpoint_get_stats(size_t stats_size, snd_endpoint *endpoint, snd_endpoint_stats *stats);
/* snd_endpoint_close aborts an established connection. Its results stay in their queues. */
SND_API snd_status snd_endpoint_close(snd_endpoint *endpoint);

/* Connections. */

typedef struct snd_connect_params {
	const void *private_data;
	uint32_t private_data_length; /* at most 512 */
	uint32_t inbound_reads; /* Reads of the peer that may run at once; at most outbound_reads of the peer; 0: none */
	uint32_t outbound_reads; /* Reads of this side that may run at once; at most inbound_reads of the peer; 0: no Reads */
	uint32_t reserved;
} snd_connect_params;

/* snd_listener_create makes a listener. */
SND_API snd_status snd_listener_create(snd_adapter *adapter, snd_listener **listener);
/* snd_listener_bind gives the listener an address; host and port may be 0. */
SND_API snd_status snd_listener_bind(snd_listener *listener, snd_address address);
/* snd_listener_listen starts to accept requests. At most backlog of them wait, or 4096 if backlog is 0 or more than that. */
SND_API snd_status snd_listener_listen(snd_listener *listener, uint32_t backlog);
/* snd_listener_address stores the address of a listener, for connectors. Call snd_listener_listen before it. */
SND_API snd_status snd_listener_address(snd_listener *listener, snd_address *address);
/* snd_listener_request waits for a connection request and makes a connector that holds it. */
SND_API snd_status snd_listener_request(snd_listener *listener, int64_t timeout, snd_connector **connector);
/* snd_listener_cancel ends the calls of other threads that wait for a request, with SND_CANCELED. Later calls wait. */
SND_API snd_status snd_listener_cancel(snd_listener *listener);
/* snd_listener_pause holds requests back, or delivers them again. */
SND_API snd_status snd_listener_pause(snd_listener *listener, int pause);
/* snd_listener_close frees the address, refuses the requests that wait, and ends the calls that wait
 * with SND_CANCELED. */
SND_API snd_status snd_listener_close(snd_listener *listener);

/* snd_connector_create makes a connector, for a call of snd_connector_connect. */
SND_API snd_status snd_connector_create(snd_adapter *adapter, snd_connector **connector);
/* snd_connector_bind gives the connector a local address; host and port may be 0. snd_connector_connect
 * does it otherwise. */
SND_API snd_status snd_connector_bind(snd_connector *connector, snd_address address);
/* snd_connector_connect requests a connection and blocks until the other side has answered. Then the
 * program reads the private data and calls snd_connector_complete or snd_connector_reject. */
SND_API snd_status snd_connector_connect(size_t params_size, snd_connector *connector, snd_endpoint *endpoint, snd_address address,
	const snd_connect_params *params, int64_t timeout);
/* snd_connector_complete establishes a connection that the other side has accepted. */
SND_API snd_status snd_connector_complete(snd_connector *connector);
/* snd_connector_accept accepts the request and blocks until the other side has completed the connection. */
SND_API snd_status snd_connector_accept(size_t params_size, snd_connector *connector, snd_endpoint *endpoint, const snd_connect_params *params,
	int64_t timeout);
/* snd_connector_reject refuses a request, or a connection that the other side has accepted. The other
 * side receives the private data. */
SND_API snd_status snd_connector_reject(snd_connector *connector, const void *private_data, uint32_t length);
/* snd_connector_start_connect is snd_connector_connect, but returns when the request is sent. snd_connector_finish takes the answer.
 * The endpoint stays open until then. snd_connector_close gives the request up. */
SND_API snd_status snd_connector_start_connect(size_t params_size, snd_connector *connector, snd_endpoint *endpoint, snd_address address,
	const snd_connect_params *params);
/* snd_connector_start_accept is snd_connector_accept, but returns when the answer is sent. snd_connector_finish returns whether the
 * other side has completed the connection. */
SND_API snd_status snd_connector_start_accept(size_t params_size, snd_connector *connector, snd_endpoint *endpoint,
	const snd_connect_params *params);
/* snd_connector_start_disconnect is snd_connector_disconnect, but returns when this side has disconnected. snd_connector_finish returns
 * whether the peer has. */
SND_API snd_status snd_connector_start_disconnect(snd_connector *connector);
/* snd_connector_finish ends the call that was started, with the status of snd_connector_connect, snd_connector_accept or
 * snd_connector_disconnect. It does not block: it fails with SND_DEVICE_BUSY while the other side has not answered, and can be called
 * again. With SND_PROGRESS_MANUAL its calls make the progress. */
SND_API snd_status snd_connector_finish(snd_connector *connector);
/* snd_connector_private_data copies the other side's private data and stores its length. */
SND_API snd_status snd_connector_private_data(snd_connector *connector, void *buffer, uint32_t capacity, uint32_t *length);
/* snd_connector_read_limits stores the numbers of Reads that the peer and this side may have
 * outstanding. */
SND_API snd_status snd_connector_read_limits(snd_connector *connector, uint32_t *inbound, uint32_t *outbound);
/* snd_connector_local_address stores the address of this side. */
SND_API snd_status snd_connector_local_address(snd_connector *connector, snd_address *address);
/* snd_connector_peer_address stores the address of the other side. */
SND_API snd_status snd_connector_peer_address(snd_connector *connector, snd_address *address);
/* snd_connector_disconnect cancels this side's requests and ends the connection gracefully. It blocks until the other side has
 * disconnected too. Take the results of all requests before it. */
SND_API snd_status snd_connector_disconnect(snd_connector *connector, int64_t timeout);
/* snd_connector_wait_disconnect blocks until the peer has disconnected, or the connection has failed; both are SND_SUCCESS.
 * snd_endpoint_error then returns which: after SND_CONNECTION_DISCONNECTED, the receives of this side stay outstanding until it
 * calls snd_connector_disconnect. */
SND_API snd_status snd_connector_wait_disconnect(snd_connector *connector, int64_t timeout);
/* snd_connector_cancel ends the calls of other threads that wait on the connector, with SND_CANCELED. */
SND_API snd_status snd_connector_cancel(snd_connector *connector);
/* snd_connector_close refuses a request that is not answered, and aborts a connection. It ends the calls
 * that wait with SND_CANCELED. */
SND_API snd_status snd_connector_close(snd_connector *connector);

/* Jobs: ranks that a launcher has started. */

/* snd_job_init makes the process the rank that its launcher has assigned to it, and returns when all
 * ranks have called it. Supported launchers are ndrun, launchers that speak PMI (MPICH's mpiexec, srun
 * with --mpi=pmi2), Open MPI's mpirun, and srun alone. Without a launcher the process is rank 0 of 1, unless SOFTND_ROOT says where
 * the ranks meet.
 *
 * Under a launcher that speaks PMI, and at SOFTND_ROOT, the ranks may run on several hosts. The first rank of each host then starts the
 * program ndrelay, which is no child of the process: docs/hosts.md.
 *
 * At SOFTND_ROOT no launcher ends the ranks if one of them dies or aborts the job: see snd_job_wait_end. If that happens before
 * snd_job_init connects the hosts, the call fails with SND_CONNECTION_ABORTED.
 *
 * After snd_job_close, a process can join the job again if all ranks do: the call waits until the others have closed it, too. Until
 * then, collective calls of the others fail, because the rank that they know has left. With a launcher that speaks PMI, a process can
 * call snd_job_init once.
 *
 * A program may use MPI too. It calls MPI_Init before snd_job_close, in any order with snd_job_init. While
 * one thread is in snd_job_init, no other may be in MPI_Init or MPI_Finalize: they may use one connection.
 *
 * SOFTND_EXEC, SOFTND_INTEGRITY, SOFTND_WEAK_ORDER and SOFTND_SPIN_BUDGET in the environment take the place of options that are 0, and
 * SOFTND_RECEIVE_TIMEOUT that of the default. */
SND_API snd_status snd_job_init(size_t options_size, const snd_fabric_options *options, int64_t timeout, snd_job **job);
/* snd_job_join makes the process a rank of a named job, for processes that no launcher has started. */
SND_API snd_status snd_job_join(size_t options_size, const char *name, uint32_t rank, uint32_t size, const snd_fabric_options *options,
	int64_t timeout, snd_job **job);
/* snd_job_rank returns the number of this rank; the first is 0. */
SND_API uint32_t snd_job_rank(snd_job *job);
/* snd_job_size returns the number of ranks. */
SND_API uint32_t snd_job_size(snd_job *job);
/* snd_job_fabric returns the fabric of the job, which snd_job_close closes. */
SND_API snd_fabric *snd_job_fabric(snd_job *job);
/* snd_job_adapter returns an adapter of the job, which snd_job_close closes. */
SND_API snd_adapter *snd_job_adapter(snd_job *job);
/* snd_job_barrier blocks until all ranks have called it. After a failure the ranks are out of step, and
 * later calls fail. */
SND_API snd_status snd_job_barrier(snd_job *job, int64_t timeout);
/* snd_job_next_death blocks until a rank has died, and returns its number. It returns each death once, and the lowest rank first if
 * several have died. A rank has died if its process has ended without snd_job_close. If
 * another process takes the place of the rank, its death is another one. With timeout 0 the call does not block.
 *
 * The other ranks go on with ndrun --on-death continue, with srun -K0, and in jobs of snd_job_join; other launchers end the job.
 * Connections to the rank end, and collective calls fail. In a job on several hosts, which ends with the first death, the
 * call returns ranks of this host only. */
SND_API snd_status snd_job_next_death(snd_job *job, int64_t timeout, uint32_t *rank);
/* snd_job_wait_end blocks until another rank has ended the job and no launcher ends this process: at SOFTND_ROOT, when a rank has called
 * snd_job_abort or died. It returns SND_CONNECTION_ABORTED then, each time, and snd_last_error names the rank. It returns SND_IO_TIMEOUT
 * while no rank has, with timeout 0 at once. With exit_with_job of the options, a thread of the library prints a line instead, and calls
 * _exit: with the code of snd_job_abort, or with 1. Without, the library never ends the process. */
SND_API snd_status snd_job_wait_end(snd_job *job, int64_t timeout);
/* snd_job_exchange gives every rank the bytes of all ranks: length bytes of each, in the order of the
 * ranks. All ranks pass the same length, and together at most 256 MiB. */
SND_API snd_status snd_job_exchange(snd_job *job, const void *mine, uint64_t length, void *all, int64_t timeout);
/* snd_job_exchange_windows is snd_job_exchange for descriptors: all has room for one of each rank. It passes 20
 * bytes, as ExchangeWindows of Go does, so ranks of both languages can call it together. */
SND_API snd_status snd_job_exchange_windows(snd_job *job, const snd_window_descriptor *mine, snd_window_descriptor *all, int64_t timeout);
/* snd_job_connect makes an endpoint that is connected with one of rank peer, which must call it too. If two ranks connect
 * several times, the n-th call of one is connected with the n-th call of the other. The lower rank waits for the request of the higher one,
 * which then has 1 s at least to complete the connection: with the time limit 0 the call takes a request that has arrived. To connect with several ranks, call snd_job_connect_ranks
 * or snd_job_connect_all: ranks that call snd_job_connect for one peer after the other, each in an order of its own, can wait for each other in a circle. */
SND_API snd_status snd_job_connect(size_t config_size, snd_job *job, uint32_t peer, const snd_endpoint_config *config,
	int64_t timeout, snd_endpoint **endpoint);
/* snd_job_connect_all connects this rank with every other rank, which call it too, and stores the endpoints by rank: endpoints has room
 * for one of each rank, and that of this rank is NULL. Each has the configuration, but its context is the number of the peer's rank. The
 * queues of the configuration need room for the results of all endpoints. No rank calls snd_job_connect meanwhile. timeout is for all
 * of them together. After a failure all endpoints are closed, and NULL: close the job, or end the process, because other ranks wait. */
SND_API snd_status snd_job_connect_all(size_t config_size, snd_job *job, const snd_endpoint_config *config, int64_t timeout,
	snd_endpoint **endpoints);
/* snd_job_connect_ranks connects this rank with each of count peers, and stores the endpoints in the order of peers. Each of these ranks calls
 * it, too, with this rank among its peers, or snd_job_connect_all. The order of peers does not matter: the ranks do not wait for each other in a
 * circle. A rank that is in peers twice gets two connections, if this rank is twice in the list of that rank. With count 0 the call does nothing.
 * It checks all of peers before it connects with the first; otherwise it is as snd_job_connect_all. */
SND_API snd_status snd_job_connect_ranks(size_t config_size, snd_job *job, const uint32_t *peers, uint32_t count,
	const snd_endpoint_config *config, int64_t timeout, snd_endpoint **endpoints);
/* snd_job_listen makes a listener, to which other ranks connect with snd_job_dial. A rank has one such listener at a time: call
 * snd_job_barrier in all ranks after it, so that no rank dials too early. */
SND_API snd_status snd_job_listen(snd_job *job, snd_listener **listener);
/* snd_job_accept blocks until another rank dials this one, makes an endpoint that is connected with the one of that rank, and stores the
 * number of the rank. Requests are accepted in the order of their arrival, without those that are given up. The time limit is for the
 * arrival of a dial: with 0 the call takes one that has arrived. The dialling rank then has 1 s at least to complete the connection. */
SND_API snd_status snd_job_accept(size_t config_size, snd_job *job, snd_listener *listener, const snd_endpoint_config *config,
	int64_t timeout, snd_endpoint **endpoint, uint32_t *peer);
/* snd_job_dial makes an endpoint that is connected with one of rank peer, which calls snd_job_accept. It fails with
 * SND_CONNECTION_REFUSED if the peer has no listener of snd_job_listen. */
SND_API snd_status snd_job_dial(size_t config_size, snd_job *job, uint32_t peer, const snd_endpoint_config *config, int64_t timeout,
	snd_endpoint **endpoint);
/* snd_job_close leaves the job in good order. It cancels the requests that are not done: take their results before it. In rank 0 of a job at SOFTND_ROOT it blocks until the other ranks have called it, and
 * returns SND_CONNECTION_ABORTED if one of them dies or aborts the job before. In the other ranks it returns that if the job ends
 * meanwhile, or SND_IO_TIMEOUT if rank 0 does not answer in two seconds. The job is closed in any case. */
SND_API snd_status snd_job_close(snd_job *job);
/* snd_job_abort ends this process with an exit code, and makes the launcher end the other ranks. The code
 * is 1 to 255; any other value counts as 1. reason is one line for the user, which is printed together
 * with the number of the rank. If job is NULL or no open job, the call takes the job that this process
 * joined last. It never returns, runs no functions of atexit, and flushes no streams. Any thread may
 * call it at any time, but no signal handler.
 *
 * ndrun and Hydra's mpiexec exit with the code of the first rank that aborts or fails. Other launchers
 * end the job because a rank has failed. At SOFTND_ROOT snd_job_wait_end returns in the other ranks. A job of snd_job_join
 * has no launcher: its other ranks detect that this process has died. A forked child only prints the reason and exits. */
SND_API SND_NORETURN void snd_job_abort(snd_job *job, int code, const char *reason);
/* snd_check does nothing if status is SND_SUCCESS. Otherwise it calls snd_job_abort for the job that this process joined last, with the
 * code 1, the name of the status and the text of snd_last_error. It is for short programs in which any failure is fatal. */
SND_API void snd_check(snd_status status);

/* The sizes of the structures that can grow, as the program was compiled. */
#ifndef SND_EXPLICIT_SIZES
#define snd_fabric_create(...) snd_fabric_create(sizeof(snd_fabric_options), __VA_ARGS__)
#define snd_fabric_attach(...) snd_fabric_attach(sizeof(snd_fabric_options), __VA_ARGS__)
#define snd_fabric_open(...) snd_fabric_open(sizeof(snd_fabric_options), __VA_ARGS__)
#define snd_adapter_query(...) snd_adapter_query(sizeof(snd_adapter_info), __VA_ARGS__)
#define snd_cq_get_stats(...) snd_cq_get_stats(sizeof(snd_cq_stats), __VA_ARGS__)
#define snd_endpoint_get_stats(...) snd_endpoint_get_stats(sizeof(snd_endpoint_stats), __VA_ARGS__)
#define snd_srq_create(...) snd_srq_create(sizeof(snd_srq_config), __VA_ARGS__)
#define snd_endpoint_create(...) snd_endpoint_create(sizeof(snd_endpoint_config), __VA_ARGS__)
#define snd_connector_connect(...) snd_connector_connect(sizeof(snd_connect_params), __VA_ARGS__)
#define snd_connector_start_connect(...) snd_connector_start_connect(sizeof(snd_connect_params), __VA_ARGS__)
#define snd_connector_start_accept(...) snd_connector_start_accept(sizeof(snd_connect_params), __VA_ARGS__)
#define snd_connector_accept(...) snd_connector_accept(sizeof(snd_connect_params), __VA_ARGS__)
#define snd_job_init(...) snd_job_init(sizeof(snd_fabric_options), __VA_ARGS__)
#define snd_job_join(...) snd_job_join(sizeof(snd_fabric_options), __VA_ARGS__)
#define snd_job_connect_ranks(...) snd_job_connect_ranks(sizeof(snd_endpoint_config), __VA_ARGS__)
#define snd_job_connect_all(...) snd_job_connect_all(sizeof(snd_endpoint_config), __VA_ARGS__)
#define snd_job_accept(...) snd_job_accept(sizeof(snd_endpoint_config), __VA_ARGS__)
#define snd_job_dial(...) snd_job_dial(sizeof(snd_endpoint_config), __VA_ARGS__)
#define snd_job_connect(...) snd_job_connect(sizeof(snd_endpoint_config), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif

#endif
