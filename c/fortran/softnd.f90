! softnd.f90: the interface of softnd.h for Fortran 2018.
!
! Compile this file with the program, and link libsoftnd. Names, arguments and statuses are those of
! softnd.h, which describes them. Handles are of type(c_ptr). Unsigned numbers of C are signed here, with
! the same bits. Member and argument "type" is request_type. Texts are Fortran strings: snd_text replaces
! snd_status_name, snd_error_text replaces snd_last_error, and snd_version_text replaces snd_version.
module softnd
  use, intrinsic :: iso_c_binding
  implicit none
  private :: c_status_name, c_last_error, c_version, c_strlen, copy_text
  private :: c_fabric_create, c_fabric_attach, c_fabric_open, c_adapter_query, c_srq_create, c_endpoint_create
  private :: c_connector_start_connect, c_connector_start_accept
  private :: c_job_connect_all, c_job_connect_ranks, c_job_accept, c_job_dial
  private :: c_cq_get_stats, c_endpoint_get_stats, c_connector_connect, c_connector_accept, c_job_init, c_job_join, c_job_connect

  integer, parameter :: snd_status = c_int32_t
  integer(c_int64_t), parameter :: snd_forever = -1_c_int64_t
  integer(c_int64_t), parameter :: snd_default_timeout = -2_c_int64_t
  integer(c_int32_t), parameter :: snd_no_spin = -1_c_int32_t

  integer(snd_status), parameter :: snd_success = 0_snd_status
  integer(snd_status), parameter :: snd_buffer_overflow = -2147483643_snd_status
  integer(snd_status), parameter :: snd_device_busy = -2147483631_snd_status
  integer(snd_status), parameter :: snd_no_more_entries = -2147483622_snd_status
  integer(snd_status), parameter :: snd_unsuccessful = -1073741823_snd_status
  integer(snd_status), parameter :: snd_access_violation = -1073741819_snd_status
  integer(snd_status), parameter :: snd_invalid_handle = -1073741816_snd_status
  integer(snd_status), parameter :: snd_invalid_parameter = -1073741811_snd_status
  integer(snd_status), parameter :: snd_invalid_device_request = -1073741808_snd_status
  integer(snd_status), parameter :: snd_no_memory = -1073741801_snd_status
  integer(snd_status), parameter :: snd_data_overrun = -1073741764_snd_status
  integer(snd_status), parameter :: snd_data_error = -1073741762_snd_status
  integer(snd_status), parameter :: snd_sharing_violation = -1073741757_snd_status
  integer(snd_status), parameter :: snd_insufficient_resources = -1073741670_snd_status
  integer(snd_status), parameter :: snd_io_timeout = -1073741643_snd_status
  integer(snd_status), parameter :: snd_not_supported = -1073741637_snd_status
  integer(snd_status), parameter :: snd_bad_network_name = -1073741620_snd_status
  integer(snd_status), parameter :: snd_internal_error = -1073741595_snd_status
  integer(snd_status), parameter :: snd_canceled = -1073741536_snd_status
  integer(snd_status), parameter :: snd_remote_error = -1073741507_snd_status
  integer(snd_status), parameter :: snd_invalid_address = -1073741503_snd_status
  integer(snd_status), parameter :: snd_invalid_device_state = -1073741436_snd_status
  integer(snd_status), parameter :: snd_invalid_buffer_size = -1073741306_snd_status
  integer(snd_status), parameter :: snd_too_many_addresses = -1073741303_snd_status
  integer(snd_status), parameter :: snd_connection_disconnected = -1073741300_snd_status
  integer(snd_status), parameter :: snd_connection_refused = -1073741258_snd_status
  integer(snd_status), parameter :: snd_address_already_associated = -1073741256_snd_status
  integer(snd_status), parameter :: snd_connection_invalid = -1073741254_snd_status
  integer(snd_status), parameter :: snd_connection_active = -1073741253_snd_status
  integer(snd_status), parameter :: snd_network_unreachable = -1073741252_snd_status
  integer(snd_status), parameter :: snd_host_unreachable = -1073741251_snd_status
  integer(snd_status), parameter :: snd_connection_aborted = -1073741247_snd_status
  integer(snd_status), parameter :: snd_device_removed = -1073741130_snd_status
  integer(snd_status), parameter :: snd_data_checksum_error = -1073740688_snd_status

  integer(c_int32_t), parameter :: snd_event_connected = 1
  integer(c_int32_t), parameter :: snd_event_disconnected = 2
  integer(c_int32_t), parameter :: snd_event_failed = 3
  integer(c_int32_t), parameter :: snd_event_peer_died = 4
  integer(c_int32_t), parameter :: snd_event_request_waits = 5
  integer(c_int32_t), parameter :: snd_event_overrun = 6
  integer(c_int32_t), parameter :: snd_event_dropped = 7
  integer(c_int32_t), parameter :: snd_allow_local_write = 1
  integer(c_int32_t), parameter :: snd_allow_remote_read = 2
  integer(c_int32_t), parameter :: snd_allow_remote_write = 5
  integer(c_int32_t), parameter :: snd_allow_remote_atomic = 65537
  integer(c_int32_t), parameter :: snd_rdma_read_sink = 8
  integer(c_int32_t), parameter :: snd_huge_pages = 131072
  integer(c_int32_t), parameter :: snd_prefault = 262144
  integer(c_int32_t), parameter :: snd_require_placement = 524288
  integer(c_int32_t), parameter :: snd_do_not_secure_vm = -2147483647 - 1
  integer(c_int32_t), parameter :: snd_request_receive = 0
  integer(c_int32_t), parameter :: snd_request_send = 1
  integer(c_int32_t), parameter :: snd_request_bind = 2
  integer(c_int32_t), parameter :: snd_request_invalidate = 3
  integer(c_int32_t), parameter :: snd_request_read = 4
  integer(c_int32_t), parameter :: snd_request_write = 5
  integer(c_int32_t), parameter :: snd_request_receive_and_invalidate = 32769
  integer(c_int32_t), parameter :: snd_request_fast_register = 32770
  integer(c_int32_t), parameter :: snd_request_fetch_and_add = 32771
  integer(c_int32_t), parameter :: snd_request_compare_and_swap = 32772
  integer(c_int32_t), parameter :: snd_request_swap = 32773
  integer(c_int32_t), parameter :: snd_request_receive_immediate = 32774
  integer(c_int32_t), parameter :: snd_request_receive_write_immediate = 32775
  integer(c_int32_t), parameter :: snd_page_size = 4096
  integer(c_int32_t), parameter :: snd_silent_success = 1
  integer(c_int32_t), parameter :: snd_read_fence = 2
  integer(c_int32_t), parameter :: snd_solicit_event = 4
  integer(c_int32_t), parameter :: snd_allow_read = 8
  integer(c_int32_t), parameter :: snd_allow_write = 16
  integer(c_int32_t), parameter :: snd_inline = 32
  integer(c_int32_t), parameter :: snd_read_local_invalidate = 256
  integer(c_int32_t), parameter :: snd_defer = 512
  integer(c_int32_t), parameter :: snd_this_endpoint_only = 65536
  integer(c_int32_t), parameter :: snd_allow_atomic = 131072
  integer(c_int32_t), parameter :: snd_adapter_in_order_dma = 1
  integer(c_int32_t), parameter :: snd_adapter_read_sink_not_required = 2
  integer(c_int32_t), parameter :: snd_adapter_interrupt_moderation = 4
  integer(c_int32_t), parameter :: snd_adapter_multi_engine = 8
  integer(c_int32_t), parameter :: snd_adapter_read_local_invalidate = 16
  integer(c_int32_t), parameter :: snd_adapter_cq_resize = 256
  integer(c_int32_t), parameter :: snd_adapter_loopback = 65536
  integer(c_int32_t), parameter :: snd_adapter_atomics = 131072
  integer(c_int32_t), parameter :: snd_adapter_immediate = 262144
  integer(c_int32_t), parameter :: snd_adapter_placement = 524288
  integer(c_int32_t), parameter :: snd_thread_safe = 0
  integer(c_int32_t), parameter :: snd_thread_domain = 1
  integer(c_int32_t), parameter :: snd_progress_auto = 0
  integer(c_int32_t), parameter :: snd_progress_manual = 1
  integer(c_int32_t), parameter :: snd_executor_auto = 0
  integer(c_int32_t), parameter :: snd_executor_target = 1
  integer(c_int32_t), parameter :: snd_window_descriptor_size = 20
  integer(c_int32_t), parameter :: snd_notify_errors = 0
  integer(c_int32_t), parameter :: snd_notify_any = 1
  integer(c_int32_t), parameter :: snd_notify_solicited = 2

  type, bind(c) :: snd_address
    integer(c_int32_t) :: host = 0
    integer(c_int16_t) :: port = 0
    integer(c_int16_t) :: reserved = 0
  end type

  type, bind(c) :: snd_fabric_options
    integer(c_int) :: threading = 0
    integer(c_int) :: progress = 0
    integer(c_int) :: executor = 0
    integer(c_int32_t) :: check_payloads = 0
    integer(c_int64_t) :: weak_order_seed = 0
    integer(c_int32_t) :: weak_order = 0
    integer(c_int32_t) :: spin_budget = 0
    integer(c_int32_t) :: count_operations = 0
    integer(c_int32_t) :: exit_with_job = 0
  end type

  type, bind(c) :: snd_event
    integer(c_int32_t) :: request_type = 0
    integer(c_int32_t) :: by_peer = 0
    integer(c_int64_t) :: number = 0
    integer(c_int64_t) :: endpoint_context = 0
    integer(c_int64_t) :: request_context = 0
    integer(c_int64_t) :: waited = 0
    integer(c_int32_t) :: status = 0
    integer(c_int32_t) :: depth = 0
    character(kind=c_char) :: peer(64) = c_null_char
    character(kind=c_char) :: text(384) = c_null_char
  end type

  type, bind(c) :: snd_adapter_info
    integer(c_int64_t) :: adapter_id = 0
    integer(c_int64_t) :: max_registration = 0
    integer(c_int64_t) :: max_window = 0
    integer(c_int64_t) :: max_transfer = 0
    integer(c_int32_t) :: max_initiator_sge = 0
    integer(c_int32_t) :: max_receive_sge = 0
    integer(c_int32_t) :: max_read_sge = 0
    integer(c_int32_t) :: max_inline = 0
    integer(c_int32_t) :: max_inbound_reads = 0
    integer(c_int32_t) :: max_outbound_reads = 0
    integer(c_int32_t) :: max_receive_depth = 0
    integer(c_int32_t) :: max_initiator_depth = 0
    integer(c_int32_t) :: max_srq_depth = 0
    integer(c_int32_t) :: max_cq_depth = 0
    integer(c_int32_t) :: inline_threshold = 0
    integer(c_int32_t) :: large_threshold = 0
    integer(c_int32_t) :: max_caller_data = 0
    integer(c_int32_t) :: max_callee_data = 0
    integer(c_int16_t) :: vendor_id = 0
    integer(c_int16_t) :: device_id = 0
    integer(c_int32_t) :: max_inter_host_connections = 0
    integer(c_int32_t) :: flags = 0
    integer(c_int32_t) :: reserved = 0
  end type

  type, bind(c) :: snd_window_descriptor
    integer(c_int64_t) :: address = 0
    integer(c_int64_t) :: length = 0
    integer(c_int32_t) :: token = 0
    integer(c_int32_t) :: reserved = 0
  end type

  type, bind(c) :: snd_fast_registration
    type(c_ptr) :: pages = c_null_ptr
    integer(c_int32_t) :: page_count = 0
    integer(c_int32_t) :: offset = 0
    integer(c_int64_t) :: length = 0
    integer(c_int64_t) :: address = 0
    integer(c_int32_t) :: rights = 0
    integer(c_int32_t) :: reserved = 0
  end type

  type, bind(c) :: snd_result
    integer(c_int32_t) :: status = 0
    integer(c_int32_t) :: bytes = 0
    integer(c_int64_t) :: endpoint_context = 0
    integer(c_int64_t) :: request_context = 0
    integer(c_int32_t) :: request_type = 0
    integer(c_int32_t) :: invalidated_token = 0
  end type

  type, bind(c) :: snd_operation_count
    integer(c_int64_t) :: succeeded = 0
    integer(c_int64_t) :: failed = 0
    integer(c_int64_t) :: bytes = 0
  end type

  type, bind(c) :: snd_operation_stats
    type(snd_operation_count) :: send
    type(snd_operation_count) :: write
    type(snd_operation_count) :: read
    type(snd_operation_count) :: bind
    type(snd_operation_count) :: invalidate
    type(snd_operation_count) :: fast_register
    type(snd_operation_count) :: atomic
    type(snd_operation_count) :: receive
  end type

  type, bind(c) :: snd_cq_stats
    integer(c_int64_t) :: number = 0
    integer(c_int64_t) :: depth = 0
    integer(c_int64_t) :: queued = 0
    integer(c_int64_t) :: results = 0
    integer(c_int64_t) :: polls = 0
    integer(c_int64_t) :: overrun = 0
    type(snd_operation_stats) :: operations
  end type

  type, bind(c) :: snd_endpoint_stats
    integer(c_int64_t) :: number = 0
    integer(c_int64_t) :: requests_posted = 0
    integer(c_int64_t) :: requests_completed = 0
    integer(c_int64_t) :: requests_immediate = 0
    integer(c_int64_t) :: receives_posted = 0
    integer(c_int64_t) :: receives_completed = 0
    integer(c_int64_t) :: posts_refused = 0
    integer(c_int64_t) :: accesses_refused = 0
    integer(c_int64_t) :: fragments = 0
    integer(c_int64_t) :: retries = 0
    integer(c_int64_t) :: stalls_receive = 0
    integer(c_int64_t) :: stalls_shared_receive = 0
    integer(c_int64_t) :: stalls_queue = 0
    integer(c_int64_t) :: stalls_order = 0
    integer(c_int64_t) :: stalls_drain = 0
    character(kind=c_char) :: state(32) = c_null_char
    character(kind=c_char) :: peer(64) = c_null_char
    type(snd_operation_stats) :: operations
  end type

  type, bind(c) :: snd_srq_config
    integer(c_int32_t) :: depth = 0
    integer(c_int32_t) :: max_sge = 0
    integer(c_int32_t) :: threshold = 0
    integer(c_int32_t) :: reserved = 0
  end type

  type, bind(c) :: snd_sge
    type(c_ptr) :: buffer = c_null_ptr
    integer(c_int32_t) :: length = 0
    integer(c_int32_t) :: token = 0
  end type

  type, bind(c) :: snd_endpoint_config
    type(c_ptr) :: receive_cq = c_null_ptr
    type(c_ptr) :: initiator_cq = c_null_ptr
    type(c_ptr) :: srq = c_null_ptr
    integer(c_int64_t) :: context = 0
    integer(c_int32_t) :: receive_depth = 0
    integer(c_int32_t) :: initiator_depth = 0
    integer(c_int32_t) :: max_receive_sge = 0
    integer(c_int32_t) :: max_initiator_sge = 0
    integer(c_int32_t) :: inline_size = 0
    integer(c_int32_t) :: check_payloads = 0
  end type

  type, bind(c) :: snd_request
    integer(c_int32_t) :: request_type = 0
    integer(c_int32_t) :: flags = 0
    integer(c_int64_t) :: context = 0
    type(c_ptr) :: sge = c_null_ptr
    integer(c_int32_t) :: count = 0
    integer(c_int32_t) :: token = 0
    integer(c_int64_t) :: address = 0
    integer(c_int64_t) :: length = 0
    integer(c_int64_t) :: operand = 0
    integer(c_int64_t) :: swap = 0
    integer(c_int32_t) :: has_immediate = 0
    integer(c_int32_t) :: immediate = 0
    type(c_ptr) :: mr = c_null_ptr
    type(c_ptr) :: window = c_null_ptr
    type(c_ptr) :: registration = c_null_ptr
  end type

  type, bind(c) :: snd_connect_params
    type(c_ptr) :: private_data = c_null_ptr
    integer(c_int32_t) :: private_data_length = 0
    integer(c_int32_t) :: inbound_reads = 0
    integer(c_int32_t) :: outbound_reads = 0
    integer(c_int32_t) :: reserved = 0
  end type

  interface
    function c_status_name(status) result(r) bind(c, name='snd_status_name')
      import
      integer(snd_status), value :: status
      type(c_ptr) :: r
    end function
    function c_last_error() result(r) bind(c, name='snd_last_error')
      import
      type(c_ptr) :: r
    end function
    function c_version() result(r) bind(c, name='snd_version')
      import
      type(c_ptr) :: r
    end function
    function c_fabric_create(options_size, ranks, size, options, fabric) result(r) bind(c, name='snd_fabric_create')
      import
      integer(c_size_t), value :: options_size
      integer(c_int32_t), value :: ranks
      integer(c_int64_t), value :: size
      type(snd_fabric_options), intent(in), optional :: options
      type(c_ptr), intent(out) :: fabric
      integer(snd_status) :: r
    end function
    function c_fabric_attach(options_size, descriptor, rank, options, fabric) result(r) bind(c, name='snd_fabric_attach')
      import
      integer(c_size_t), value :: options_size
      integer(c_int), value :: descriptor
      integer(c_int32_t), value :: rank
      type(snd_fabric_options), intent(in), optional :: options
      type(c_ptr), intent(out) :: fabric
      integer(snd_status) :: r
    end function
    function c_fabric_open(options_size, name, ranks, size, rank, options, fabric) result(r) bind(c, name='snd_fabric_open')
      import
      integer(c_size_t), value :: options_size
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int32_t), value :: ranks
      integer(c_int64_t), value :: size
      integer(c_int32_t), value :: rank
      type(snd_fabric_options), intent(in), optional :: options
      type(c_ptr), intent(out) :: fabric
      integer(snd_status) :: r
    end function
    function snd_fabric_descriptor(fabric) result(r) bind(c)
      import
      type(c_ptr), value :: fabric
      integer(c_int) :: r
    end function
    function snd_fabric_address(fabric) result(r) bind(c)
      import
      type(c_ptr), value :: fabric
      type(snd_address) :: r
    end function
    function snd_fabric_set_timeouts(fabric, receive, disconnect) result(r) bind(c)
      import
      type(c_ptr), value :: fabric
      integer(c_int64_t), value :: receive, disconnect
      integer(snd_status) :: r
    end function
    function snd_fabric_set_event_handler(fabric, handler, arg) result(r) bind(c)
      import
      type(c_ptr), value :: fabric
      type(c_funptr), value :: handler
      type(c_ptr), value :: arg
      integer(snd_status) :: r
    end function
    function snd_fabric_publish(fabric, name, address) result(r) bind(c)
      import
      type(c_ptr), value :: fabric
      character(kind=c_char), intent(in) :: name(*)
      type(snd_address), value :: address
      integer(snd_status) :: r
    end function
    function snd_fabric_withdraw(fabric, name) result(r) bind(c)
      import
      type(c_ptr), value :: fabric
      character(kind=c_char), intent(in) :: name(*)
      integer(snd_status) :: r
    end function
    function snd_fabric_lookup(fabric, name, timeout, address) result(r) bind(c)
      import
      type(c_ptr), value :: fabric
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: timeout
      type(snd_address), intent(out) :: address
      integer(snd_status) :: r
    end function
    function snd_fabric_progress(fabric) result(r) bind(c)
      import
      type(c_ptr), value :: fabric
      integer(snd_status) :: r
    end function
    function snd_fabric_event_fd(fabric, descriptor) result(r) bind(c)
      import
      type(c_ptr), value :: fabric
      integer(c_int), intent(out) :: descriptor
      integer(snd_status) :: r
    end function
    function snd_fabric_close(fabric) result(r) bind(c)
      import
      type(c_ptr), value :: fabric
      integer(snd_status) :: r
    end function
    function snd_adapter_open(fabric, adapter) result(r) bind(c)
      import
      type(c_ptr), value :: fabric
      type(c_ptr), intent(out) :: adapter
      integer(snd_status) :: r
    end function
    function c_adapter_query(info_size, adapter, info) result(r) bind(c, name='snd_adapter_query')
      import
      integer(c_size_t), value :: info_size
      type(c_ptr), value :: adapter
      type(snd_adapter_info), intent(out) :: info
      integer(snd_status) :: r
    end function
    function snd_adapter_close(adapter, timeout) result(r) bind(c)
      import
      type(c_ptr), value :: adapter
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function snd_mr_allocate(adapter, length, flags, mr) result(r) bind(c)
      import
      type(c_ptr), value :: adapter
      integer(c_int64_t), value :: length
      integer(c_int32_t), value :: flags
      type(c_ptr), intent(out) :: mr
      integer(snd_status) :: r
    end function
    function snd_mr_register(adapter, buffer, length, flags, mr) result(r) bind(c)
      import
      type(c_ptr), value :: adapter, buffer
      integer(c_int64_t), value :: length
      integer(c_int32_t), value :: flags
      type(c_ptr), intent(out) :: mr
      integer(snd_status) :: r
    end function
    function snd_mr_buffer(mr) result(r) bind(c)
      import
      type(c_ptr), value :: mr
      type(c_ptr) :: r
    end function
    function snd_mr_length(mr) result(r) bind(c)
      import
      type(c_ptr), value :: mr
      integer(c_int64_t) :: r
    end function
    function snd_mr_placement(mr) result(r) bind(c)
      import
      type(c_ptr), value :: mr
      integer(c_int32_t) :: r
    end function
    function snd_mr_address(mr) result(r) bind(c)
      import
      type(c_ptr), value :: mr
      integer(c_int64_t) :: r
    end function
    function snd_mr_local_token(mr) result(r) bind(c)
      import
      type(c_ptr), value :: mr
      integer(c_int32_t) :: r
    end function
    function snd_mr_remote_token(mr) result(r) bind(c)
      import
      type(c_ptr), value :: mr
      integer(c_int32_t) :: r
    end function
    function snd_mr_sge(mr, offset, length) result(r) bind(c)
      import
      type(c_ptr), value :: mr
      integer(c_int64_t), value :: offset
      integer(c_size_t), value :: length
      type(snd_sge) :: r
    end function
    function snd_mr_close(mr, timeout) result(r) bind(c)
      import
      type(c_ptr), value :: mr
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function snd_window_create(adapter, window) result(r) bind(c)
      import
      type(c_ptr), value :: adapter
      type(c_ptr), intent(out) :: window
      integer(snd_status) :: r
    end function
    function snd_window_query(window, descriptor) result(r) bind(c)
      import
      type(c_ptr), value :: window
      type(snd_window_descriptor), intent(out) :: descriptor
      integer(snd_status) :: r
    end function
    function snd_mr_query(mr, descriptor) result(r) bind(c)
      import
      type(c_ptr), value :: mr
      type(snd_window_descriptor), intent(out) :: descriptor
      integer(snd_status) :: r
    end function
    subroutine snd_window_descriptor_encode(descriptor, bytes) bind(c)
      import
      type(snd_window_descriptor), intent(in) :: descriptor
      integer(c_int8_t), intent(out) :: bytes(*)
    end subroutine
    subroutine snd_window_descriptor_decode(bytes, descriptor) bind(c)
      import
      integer(c_int8_t), intent(in) :: bytes(*)
      type(snd_window_descriptor), intent(out) :: descriptor
    end subroutine
    function snd_window_close(window, timeout) result(r) bind(c)
      import
      type(c_ptr), value :: window
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function snd_mapping_create(mr, buffer, length, mapping) result(r) bind(c)
      import
      type(c_ptr), value :: mr, buffer
      integer(c_int64_t), value :: length
      type(c_ptr), intent(out) :: mapping
      integer(snd_status) :: r
    end function
    function snd_mapping_pages(mapping, pages, capacity) result(r) bind(c)
      import
      type(c_ptr), value :: mapping
      integer(c_int64_t), intent(out) :: pages(*)
      integer(c_int32_t), value :: capacity
      integer(c_int32_t) :: r
    end function
    function snd_mapping_offset(mapping) result(r) bind(c)
      import
      type(c_ptr), value :: mapping
      integer(c_int32_t) :: r
    end function
    function snd_mapping_close(mapping, timeout) result(r) bind(c)
      import
      type(c_ptr), value :: mapping
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function snd_adapter_privileged_token(adapter, token) result(r) bind(c)
      import
      type(c_ptr), value :: adapter
      integer(c_int32_t), intent(out) :: token
      integer(snd_status) :: r
    end function
    function snd_mr_create_fast(adapter, pages, remote, mr) result(r) bind(c)
      import
      type(c_ptr), value :: adapter
      integer(c_int32_t), value :: pages
      integer(c_int), value :: remote
      type(c_ptr), intent(out) :: mr
      integer(snd_status) :: r
    end function
    function snd_cq_create(adapter, depth, cq) result(r) bind(c)
      import
      type(c_ptr), value :: adapter
      integer(c_int32_t), value :: depth
      type(c_ptr), intent(out) :: cq
      integer(snd_status) :: r
    end function
    function snd_cq_poll(cq, results, count) result(r) bind(c)
      import
      type(c_ptr), value :: cq
      type(snd_result), intent(inout) :: results(*)
      integer(c_int32_t), value :: count
      integer(c_int32_t) :: r
    end function
    function snd_cq_wait(cq, results, count, timeout, taken) result(r) bind(c)
      import
      type(c_ptr), value :: cq
      type(snd_result), intent(inout) :: results(*)
      integer(c_int32_t), value :: count
      integer(c_int64_t), value :: timeout
      integer(c_int32_t), intent(out) :: taken
      integer(snd_status) :: r
    end function
    function snd_cq_wait_one(cq, endpoint, timeout, result) result(r) bind(c)
      import
      type(c_ptr), value :: cq, endpoint
      integer(c_int64_t), value :: timeout
      type(snd_result), intent(out) :: result
      integer(snd_status) :: r
    end function
    function snd_cq_notify(cq, request_type, timeout) result(r) bind(c)
      import
      type(c_ptr), value :: cq
      integer(c_int32_t), value :: request_type
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function snd_cq_event_fd(cq, descriptor) result(r) bind(c)
      import
      type(c_ptr), value :: cq
      integer(c_int), intent(out) :: descriptor
      integer(snd_status) :: r
    end function
    function snd_cq_moderate(cq, interval, count) result(r) bind(c)
      import
      type(c_ptr), value :: cq
      integer(c_int64_t), value :: interval
      integer(c_int32_t), value :: count
      integer(snd_status) :: r
    end function
    function snd_cq_notify_affinity(cq, group, mask) result(r) bind(c)
      import
      type(c_ptr), value :: cq
      integer(c_int16_t), intent(out) :: group
      integer(c_int64_t), intent(out) :: mask
      integer(snd_status) :: r
    end function
    function snd_cq_resize(cq, depth) result(r) bind(c)
      import
      type(c_ptr), value :: cq
      integer(c_int32_t), value :: depth
      integer(snd_status) :: r
    end function
    function c_cq_get_stats(stats_size, cq, stats) result(r) bind(c, name='snd_cq_get_stats')
      import
      integer(c_size_t), value :: stats_size
      type(c_ptr), value :: cq
      type(snd_cq_stats), intent(out) :: stats
      integer(snd_status) :: r
    end function
    function snd_cq_cancel(cq) result(r) bind(c)
      import
      type(c_ptr), value :: cq
      integer(snd_status) :: r
    end function
    function snd_cq_close(cq) result(r) bind(c)
      import
      type(c_ptr), value :: cq
      integer(snd_status) :: r
    end function
    function c_srq_create(config_size, adapter, config, srq) result(r) bind(c, name='snd_srq_create')
      import
      integer(c_size_t), value :: config_size
      type(c_ptr), value :: adapter
      type(snd_srq_config), intent(in) :: config
      type(c_ptr), intent(out) :: srq
      integer(snd_status) :: r
    end function
    function snd_srq_receive(srq, context, sge, count) result(r) bind(c)
      import
      type(c_ptr), value :: srq
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count
      integer(snd_status) :: r
    end function
    function snd_srq_notify(srq, timeout) result(r) bind(c)
      import
      type(c_ptr), value :: srq
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function snd_srq_post(srq, requests, count, posted) result(r) bind(c)
      import
      type(c_ptr), value :: srq
      type(snd_request), intent(in) :: requests(*)
      integer(c_int32_t), value :: count
      integer(c_int32_t), intent(out) :: posted
      integer(snd_status) :: r
    end function
    function snd_srq_notify_affinity(srq, group, mask) result(r) bind(c)
      import
      type(c_ptr), value :: srq
      integer(c_int16_t), intent(out) :: group
      integer(c_int64_t), intent(out) :: mask
      integer(snd_status) :: r
    end function
    function snd_srq_modify(srq, depth, threshold) result(r) bind(c)
      import
      type(c_ptr), value :: srq
      integer(c_int32_t), value :: depth, threshold
      integer(snd_status) :: r
    end function
    function snd_srq_cancel(srq) result(r) bind(c)
      import
      type(c_ptr), value :: srq
      integer(snd_status) :: r
    end function
    function snd_srq_close(srq) result(r) bind(c)
      import
      type(c_ptr), value :: srq
      integer(snd_status) :: r
    end function
    function c_endpoint_create(config_size, adapter, config, endpoint) result(r) bind(c, name='snd_endpoint_create')
      import
      integer(c_size_t), value :: config_size
      type(c_ptr), value :: adapter
      type(snd_endpoint_config), intent(in) :: config
      type(c_ptr), intent(out) :: endpoint
      integer(snd_status) :: r
    end function
    function snd_endpoint_receive(endpoint, context, sge, count) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count
      integer(snd_status) :: r
    end function
    function snd_endpoint_send(endpoint, context, sge, count, flags) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count, flags
      integer(snd_status) :: r
    end function
    function snd_endpoint_send_and_invalidate(endpoint, context, sge, count, token, flags) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count, token, flags
      integer(snd_status) :: r
    end function
    function snd_endpoint_write(endpoint, context, sge, count, address, token, flags) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count
      integer(c_int64_t), value :: address
      integer(c_int32_t), value :: token, flags
      integer(snd_status) :: r
    end function
    function snd_endpoint_read(endpoint, context, sge, count, address, token, flags) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count
      integer(c_int64_t), value :: address
      integer(c_int32_t), value :: token, flags
      integer(snd_status) :: r
    end function
    function snd_endpoint_send_immediate(endpoint, context, sge, count, immediate, flags) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count, immediate, flags
      integer(snd_status) :: r
    end function
    function snd_endpoint_write_immediate(endpoint, context, sge, count, address, token, immediate, flags) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count
      integer(c_int64_t), value :: address
      integer(c_int32_t), value :: token, immediate, flags
      integer(snd_status) :: r
    end function
    function snd_endpoint_fetch_and_add(endpoint, context, sge, count, address, token, add, flags) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count
      integer(c_int64_t), value :: address
      integer(c_int32_t), value :: token
      integer(c_int64_t), value :: add
      integer(c_int32_t), value :: flags
      integer(snd_status) :: r
    end function
    function snd_endpoint_compare_and_swap(endpoint, context, sge, count, address, token, compare, swap, flags) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count
      integer(c_int64_t), value :: address
      integer(c_int32_t), value :: token
      integer(c_int64_t), value :: compare, swap
      integer(c_int32_t), value :: flags
      integer(snd_status) :: r
    end function
    function snd_endpoint_swap(endpoint, context, sge, count, address, token, value, flags) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count
      integer(c_int64_t), value :: address
      integer(c_int32_t), value :: token
      integer(c_int64_t), value :: value
      integer(c_int32_t), value :: flags
      integer(snd_status) :: r
    end function
    function snd_endpoint_bind(endpoint, context, mr, window, buffer, length, flags) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(c_ptr), value :: mr, window, buffer
      integer(c_int64_t), value :: length
      integer(c_int32_t), value :: flags
      integer(snd_status) :: r
    end function
    function snd_endpoint_invalidate(endpoint, context, window, flags) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(c_ptr), value :: window
      integer(c_int32_t), value :: flags
      integer(snd_status) :: r
    end function
      function snd_endpoint_fast_register(endpoint, context, mr, registration, flags) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(c_ptr), value :: mr
      type(snd_fast_registration), intent(in) :: registration
      integer(c_int32_t), value :: flags
      integer(snd_status) :: r
    end function
    function snd_endpoint_invalidate_mr(endpoint, context, mr, flags) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(c_ptr), value :: mr
      integer(c_int32_t), value :: flags
      integer(snd_status) :: r
    end function
    function snd_endpoint_post(endpoint, requests, count, posted) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      type(snd_request), intent(in) :: requests(*)
      integer(c_int32_t), value :: count
      integer(c_int32_t), intent(out) :: posted
      integer(snd_status) :: r
    end function
    function snd_endpoint_wait_slot(endpoint, timeout) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function snd_endpoint_flush(endpoint, timeout) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function snd_endpoint_error(endpoint) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(snd_status) :: r
    end function
    function c_endpoint_get_stats(stats_size, endpoint, stats) result(r) bind(c, name='snd_endpoint_get_stats')
      import
      integer(c_size_t), value :: stats_size
      type(c_ptr), value :: endpoint
      type(snd_endpoint_stats), intent(out) :: stats
      integer(snd_status) :: r
    end function
    function snd_endpoint_close(endpoint) result(r) bind(c)
      import
      type(c_ptr), value :: endpoint
      integer(snd_status) :: r
    end function
    function snd_listener_create(adapter, listener) result(r) bind(c)
      import
      type(c_ptr), value :: adapter
      type(c_ptr), intent(out) :: listener
      integer(snd_status) :: r
    end function
    function snd_listener_bind(listener, address) result(r) bind(c)
      import
      type(c_ptr), value :: listener
      type(snd_address), value :: address
      integer(snd_status) :: r
    end function
    function snd_listener_listen(listener, backlog) result(r) bind(c)
      import
      type(c_ptr), value :: listener
      integer(c_int32_t), value :: backlog
      integer(snd_status) :: r
    end function
    function snd_listener_address(listener, address) result(r) bind(c)
      import
      type(c_ptr), value :: listener
      type(snd_address), intent(out) :: address
      integer(snd_status) :: r
    end function
    function snd_listener_request(listener, timeout, connector) result(r) bind(c)
      import
      type(c_ptr), value :: listener
      integer(c_int64_t), value :: timeout
      type(c_ptr), intent(out) :: connector
      integer(snd_status) :: r
    end function
    function snd_listener_pause(listener, pause) result(r) bind(c)
      import
      type(c_ptr), value :: listener
      integer(c_int), value :: pause
      integer(snd_status) :: r
    end function
    function snd_listener_cancel(listener) result(r) bind(c)
      import
      type(c_ptr), value :: listener
      integer(snd_status) :: r
    end function
    function snd_listener_close(listener) result(r) bind(c)
      import
      type(c_ptr), value :: listener
      integer(snd_status) :: r
    end function
    function snd_connector_create(adapter, connector) result(r) bind(c)
      import
      type(c_ptr), value :: adapter
      type(c_ptr), intent(out) :: connector
      integer(snd_status) :: r
    end function
    function snd_connector_bind(connector, address) result(r) bind(c)
      import
      type(c_ptr), value :: connector
      type(snd_address), value :: address
      integer(snd_status) :: r
    end function
    function c_connector_connect(params_size, connector, endpoint, address, params, timeout) result(r) &
        bind(c, name='snd_connector_connect')
      import
      integer(c_size_t), value :: params_size
      type(c_ptr), value :: connector, endpoint
      type(snd_address), value :: address
      type(snd_connect_params), intent(in), optional :: params
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function snd_connector_complete(connector) result(r) bind(c)
      import
      type(c_ptr), value :: connector
      integer(snd_status) :: r
    end function
    function c_connector_accept(params_size, connector, endpoint, params, timeout) result(r) bind(c, name='snd_connector_accept')
      import
      integer(c_size_t), value :: params_size
      type(c_ptr), value :: connector, endpoint
      type(snd_connect_params), intent(in), optional :: params
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function snd_connector_reject(connector, private_data, length) result(r) bind(c)
      import
      type(c_ptr), value :: connector, private_data
      integer(c_int32_t), value :: length
      integer(snd_status) :: r
    end function
    function snd_connector_private_data(connector, buffer, capacity, length) result(r) bind(c)
      import
      type(c_ptr), value :: connector, buffer
      integer(c_int32_t), value :: capacity
      integer(c_int32_t), intent(out) :: length
      integer(snd_status) :: r
    end function
    function snd_connector_read_limits(connector, inbound, outbound) result(r) bind(c)
      import
      type(c_ptr), value :: connector
      integer(c_int32_t), intent(out) :: inbound, outbound
      integer(snd_status) :: r
    end function
    function snd_connector_local_address(connector, address) result(r) bind(c)
      import
      type(c_ptr), value :: connector
      type(snd_address), intent(out) :: address
      integer(snd_status) :: r
    end function
    function snd_connector_peer_address(connector, address) result(r) bind(c)
      import
      type(c_ptr), value :: connector
      type(snd_address), intent(out) :: address
      integer(snd_status) :: r
    end function
    function snd_connector_disconnect(connector, timeout) result(r) bind(c)
      import
      type(c_ptr), value :: connector
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function snd_connector_wait_disconnect(connector, timeout) result(r) bind(c)
      import
      type(c_ptr), value :: connector
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function snd_connector_cancel(connector) result(r) bind(c)
      import
      type(c_ptr), value :: connector
      integer(snd_status) :: r
    end function
    function snd_connector_start_disconnect(connector) result(r) bind(c)
      import
      type(c_ptr), value :: connector
      integer(snd_status) :: r
    end function
    function snd_connector_finish(connector) result(r) bind(c)
      import
      type(c_ptr), value :: connector
      integer(snd_status) :: r
    end function
    function c_connector_start_connect(params_size, connector, endpoint, address, params) result(r) &
        bind(c, name='snd_connector_start_connect')
      import
      integer(c_size_t), value :: params_size
      type(c_ptr), value :: connector, endpoint
      type(snd_address), value :: address
      type(snd_connect_params), intent(in), optional :: params
      integer(snd_status) :: r
    end function
    function c_connector_start_accept(params_size, connector, endpoint, params) result(r) &
        bind(c, name='snd_connector_start_accept')
      import
      integer(c_size_t), value :: params_size
      type(c_ptr), value :: connector, endpoint
      type(snd_connect_params), intent(in), optional :: params
      integer(snd_status) :: r
    end function
    function snd_connector_close(connector) result(r) bind(c)
      import
      type(c_ptr), value :: connector
      integer(snd_status) :: r
    end function
    function c_job_init(options_size, options, timeout, job) result(r) bind(c, name='snd_job_init')
      import
      integer(c_size_t), value :: options_size
      type(snd_fabric_options), intent(in), optional :: options
      integer(c_int64_t), value :: timeout
      type(c_ptr), intent(out) :: job
      integer(snd_status) :: r
    end function
    function c_job_join(options_size, name, rank, size, options, timeout, job) result(r) bind(c, name='snd_job_join')
      import
      integer(c_size_t), value :: options_size
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int32_t), value :: rank, size
      type(snd_fabric_options), intent(in), optional :: options
      integer(c_int64_t), value :: timeout
      type(c_ptr), intent(out) :: job
      integer(snd_status) :: r
    end function
    function snd_job_rank(job) result(r) bind(c)
      import
      type(c_ptr), value :: job
      integer(c_int32_t) :: r
    end function
    function snd_job_size(job) result(r) bind(c)
      import
      type(c_ptr), value :: job
      integer(c_int32_t) :: r
    end function
    function snd_job_fabric(job) result(r) bind(c)
      import
      type(c_ptr), value :: job
      type(c_ptr) :: r
    end function
    function snd_job_adapter(job) result(r) bind(c)
      import
      type(c_ptr), value :: job
      type(c_ptr) :: r
    end function
    function snd_job_barrier(job, timeout) result(r) bind(c)
      import
      type(c_ptr), value :: job
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function snd_job_wait_end(job, timeout) result(r) bind(c)
      import
      type(c_ptr), value :: job
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function snd_job_next_death(job, timeout, rank) result(r) bind(c)
      import
      type(c_ptr), value :: job
      integer(c_int64_t), value :: timeout
      integer(c_int32_t), intent(out) :: rank
      integer(snd_status) :: r
    end function
    function snd_job_exchange(job, mine, length, all, timeout) result(r) bind(c)
      import
      type(c_ptr), value :: job, mine
      integer(c_int64_t), value :: length
      type(c_ptr), value :: all
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function snd_job_exchange_windows(job, mine, all, timeout) result(r) bind(c)
      import
      type(c_ptr), value :: job
      type(snd_window_descriptor), intent(in) :: mine
      type(snd_window_descriptor), intent(inout) :: all(*)
      integer(c_int64_t), value :: timeout
      integer(snd_status) :: r
    end function
    function c_job_connect(config_size, job, peer, config, timeout, endpoint) result(r) bind(c, name='snd_job_connect')
      import
      integer(c_size_t), value :: config_size
      type(c_ptr), value :: job
      integer(c_int32_t), value :: peer
      type(snd_endpoint_config), intent(in) :: config
      integer(c_int64_t), value :: timeout
      type(c_ptr), intent(out) :: endpoint
      integer(snd_status) :: r
    end function
    function c_job_connect_all(config_size, job, config, timeout, endpoints) result(r) bind(c, name='snd_job_connect_all')
      import
      integer(c_size_t), value :: config_size
      type(c_ptr), value :: job
      type(snd_endpoint_config), intent(in) :: config
      integer(c_int64_t), value :: timeout
      type(c_ptr), intent(out) :: endpoints(*)
      integer(snd_status) :: r
    end function
    function c_job_connect_ranks(config_size, job, peers, count, config, timeout, endpoints) result(r) &
        bind(c, name='snd_job_connect_ranks')
      import
      integer(c_size_t), value :: config_size
      type(c_ptr), value :: job
      integer(c_int32_t), intent(in) :: peers(*)
      integer(c_int32_t), value :: count
      type(snd_endpoint_config), intent(in) :: config
      integer(c_int64_t), value :: timeout
      type(c_ptr), intent(out) :: endpoints(*)
      integer(snd_status) :: r
    end function
    function c_job_accept(config_size, job, listener, config, timeout, endpoint, peer) result(r) bind(c, name='snd_job_accept')
      import
      integer(c_size_t), value :: config_size
      type(c_ptr), value :: job, listener
      type(snd_endpoint_config), intent(in) :: config
      integer(c_int64_t), value :: timeout
      type(c_ptr), intent(out) :: endpoint
      integer(c_int32_t), intent(out) :: peer
      integer(snd_status) :: r
    end function
    function c_job_dial(config_size, job, peer, config, timeout, endpoint) result(r) bind(c, name='snd_job_dial')
      import
      integer(c_size_t), value :: config_size
      type(c_ptr), value :: job
      integer(c_int32_t), value :: peer
      type(snd_endpoint_config), intent(in) :: config
      integer(c_int64_t), value :: timeout
      type(c_ptr), intent(out) :: endpoint
      integer(snd_status) :: r
    end function
    function snd_job_listen(job, listener) result(r) bind(c)
      import
      type(c_ptr), value :: job
      type(c_ptr), intent(out) :: listener
      integer(snd_status) :: r
    end function
    function snd_job_close(job) result(r) bind(c)
      import
      type(c_ptr), value :: job
      integer(snd_status) :: r
    end function
    subroutine snd_check(status) bind(c)
      import
      integer(c_int32_t), value :: status
    end subroutine
    subroutine snd_job_abort(job, code, reason) bind(c)
      import
      type(c_ptr), value :: job
      integer(c_int), value :: code
      character(kind=c_char), intent(in) :: reason(*)
    end subroutine
    function c_strlen(text) result(r) bind(c, name='strlen')
      import
      type(c_ptr), value :: text
      integer(c_size_t) :: r
    end function
  end interface

contains

  ! The calls that take a structure which can grow pass its size.
  function snd_fabric_create(ranks, size, options, fabric) result(r)
    integer(c_int32_t), value :: ranks
    integer(c_int64_t), value :: size
    type(snd_fabric_options), intent(in), optional :: options
    type(c_ptr), intent(out) :: fabric
    integer(snd_status) :: r
    type(snd_fabric_options) :: present_options
    r = c_fabric_create(c_sizeof(present_options), ranks, size, options, fabric)
  end function
  function snd_fabric_attach(descriptor, rank, options, fabric) result(r)
    integer(c_int), value :: descriptor
    integer(c_int32_t), value :: rank
    type(snd_fabric_options), intent(in), optional :: options
    type(c_ptr), intent(out) :: fabric
    integer(snd_status) :: r
    type(snd_fabric_options) :: present_options
    r = c_fabric_attach(c_sizeof(present_options), descriptor, rank, options, fabric)
  end function
  function snd_fabric_open(name, ranks, size, rank, options, fabric) result(r)
    character(kind=c_char), intent(in) :: name(*)
    integer(c_int32_t), value :: ranks
    integer(c_int64_t), value :: size
    integer(c_int32_t), value :: rank
    type(snd_fabric_options), intent(in), optional :: options
    type(c_ptr), intent(out) :: fabric
    integer(snd_status) :: r
    type(snd_fabric_options) :: present_options
    r = c_fabric_open(c_sizeof(present_options), name, ranks, size, rank, options, fabric)
  end function
  function snd_adapter_query(adapter, info) result(r)
    type(c_ptr), value :: adapter
    type(snd_adapter_info), intent(out) :: info
    integer(snd_status) :: r
    r = c_adapter_query(c_sizeof(info), adapter, info)
  end function
  function snd_cq_get_stats(cq, stats) result(r)
    type(c_ptr), value :: cq
    type(snd_cq_stats), intent(out) :: stats
    integer(snd_status) :: r
    r = c_cq_get_stats(c_sizeof(stats), cq, stats)
  end function
  function snd_endpoint_get_stats(endpoint, stats) result(r)
    type(c_ptr), value :: endpoint
    type(snd_endpoint_stats), intent(out) :: stats
    integer(snd_status) :: r
    r = c_endpoint_get_stats(c_sizeof(stats), endpoint, stats)
  end function
  function snd_connector_start_connect(connector, endpoint, address, params) result(r)
    type(c_ptr), value :: connector, endpoint
    type(snd_address), value :: address
    type(snd_connect_params), intent(in), optional :: params
    integer(snd_status) :: r
    type(snd_connect_params) :: present_params
    r = c_connector_start_connect(c_sizeof(present_params), connector, endpoint, address, params)
  end function
  function snd_connector_start_accept(connector, endpoint, params) result(r)
    type(c_ptr), value :: connector, endpoint
    type(snd_connect_params), intent(in), optional :: params
    integer(snd_status) :: r
    type(snd_connect_params) :: present_params
    r = c_connector_start_accept(c_sizeof(present_params), connector, endpoint, params)
  end function
  function snd_job_connect_all(job, config, timeout, endpoints) result(r)
    type(c_ptr), value :: job
    type(snd_endpoint_config), intent(in) :: config
    integer(c_int64_t), value :: timeout
    type(c_ptr), intent(out) :: endpoints(*)
    integer(snd_status) :: r
    r = c_job_connect_all(c_sizeof(config), job, config, timeout, endpoints)
  end function
  function snd_job_connect_ranks(job, peers, count, config, timeout, endpoints) result(r)
    type(c_ptr), value :: job
    integer(c_int32_t), intent(in) :: peers(*)
    integer(c_int32_t), value :: count
    type(snd_endpoint_config), intent(in) :: config
    integer(c_int64_t), value :: timeout
    type(c_ptr), intent(out) :: endpoints(*)
    integer(snd_status) :: r
    r = c_job_connect_ranks(c_sizeof(config), job, peers, count, config, timeout, endpoints)
  end function
  function snd_job_accept(job, listener, config, timeout, endpoint, peer) result(r)
    type(c_ptr), value :: job, listener
    type(snd_endpoint_config), intent(in) :: config
    integer(c_int64_t), value :: timeout
    type(c_ptr), intent(out) :: endpoint
    integer(c_int32_t), intent(out) :: peer
    integer(snd_status) :: r
    r = c_job_accept(c_sizeof(config), job, listener, config, timeout, endpoint, peer)
  end function
  function snd_job_dial(job, peer, config, timeout, endpoint) result(r)
    type(c_ptr), value :: job
    integer(c_int32_t), value :: peer
    type(snd_endpoint_config), intent(in) :: config
    integer(c_int64_t), value :: timeout
    type(c_ptr), intent(out) :: endpoint
    integer(snd_status) :: r
    r = c_job_dial(c_sizeof(config), job, peer, config, timeout, endpoint)
  end function
  function snd_srq_create(adapter, config, srq) result(r)
    type(c_ptr), value :: adapter
    type(snd_srq_config), intent(in) :: config
    type(c_ptr), intent(out) :: srq
    integer(snd_status) :: r
    r = c_srq_create(c_sizeof(config), adapter, config, srq)
  end function
  function snd_endpoint_create(adapter, config, endpoint) result(r)
    type(c_ptr), value :: adapter
    type(snd_endpoint_config), intent(in) :: config
    type(c_ptr), intent(out) :: endpoint
    integer(snd_status) :: r
    r = c_endpoint_create(c_sizeof(config), adapter, config, endpoint)
  end function
  function snd_connector_connect(connector, endpoint, address, params, timeout) result(r)
    type(c_ptr), value :: connector, endpoint
    type(snd_address), value :: address
    type(snd_connect_params), intent(in), optional :: params
    integer(c_int64_t), value :: timeout
    integer(snd_status) :: r
    type(snd_connect_params) :: present_params
    r = c_connector_connect(c_sizeof(present_params), connector, endpoint, address, params, timeout)
  end function
  function snd_connector_accept(connector, endpoint, params, timeout) result(r)
    type(c_ptr), value :: connector, endpoint
    type(snd_connect_params), intent(in), optional :: params
    integer(c_int64_t), value :: timeout
    integer(snd_status) :: r
    type(snd_connect_params) :: present_params
    r = c_connector_accept(c_sizeof(present_params), connector, endpoint, params, timeout)
  end function
  function snd_job_init(options, timeout, job) result(r)
    type(snd_fabric_options), intent(in), optional :: options
    integer(c_int64_t), value :: timeout
    type(c_ptr), intent(out) :: job
    integer(snd_status) :: r
    type(snd_fabric_options) :: present_options
    r = c_job_init(c_sizeof(present_options), options, timeout, job)
  end function
  function snd_job_join(name, rank, size, options, timeout, job) result(r)
    character(kind=c_char), intent(in) :: name(*)
    integer(c_int32_t), value :: rank, size
    type(snd_fabric_options), intent(in), optional :: options
    integer(c_int64_t), value :: timeout
    type(c_ptr), intent(out) :: job
    integer(snd_status) :: r
    type(snd_fabric_options) :: present_options
    r = c_job_join(c_sizeof(present_options), name, rank, size, options, timeout, job)
  end function
  function snd_job_connect(job, peer, config, timeout, endpoint) result(r)
    type(c_ptr), value :: job
    integer(c_int32_t), value :: peer
    type(snd_endpoint_config), intent(in) :: config
    integer(c_int64_t), value :: timeout
    type(c_ptr), intent(out) :: endpoint
    integer(snd_status) :: r
    r = c_job_connect(c_sizeof(config), job, peer, config, timeout, endpoint)
  end function

  ! snd_on_node returns the flag for memory of a NUMA node.
  pure function snd_on_node(node) result(flag)
    integer(c_int32_t), intent(in) :: node
    integer(c_int32_t) :: flag
    flag = 1048576 * (merge(1022, node, node < 0 .or. node > 1022) + 1)
  end function

  ! snd_text returns the name of a status, such as "access violation".
  function snd_text(status) result(text)
    integer(c_int32_t), intent(in) :: status
    character(len=:), allocatable :: text
    text = copy_text(c_status_name(status))
  end function

  ! snd_error_text returns the text of the latest failure of a call in this thread.
  function snd_error_text() result(text)
    character(len=:), allocatable :: text
    text = copy_text(c_last_error())
  end function

  ! snd_version_text returns the version of the library, such as "0.1.0".
  function snd_version_text() result(text)
    character(len=:), allocatable :: text
    text = copy_text(c_version())
  end function

  function copy_text(from) result(text)
    type(c_ptr), intent(in) :: from
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: chars(:)
    integer :: i
    call c_f_pointer(from, chars, [c_strlen(from)])
    allocate (character(len=size(chars)) :: text)
    do i = 1, size(chars)
      text(i:i) = chars(i)
    end do
  end function
end module
