! softnd.f90: jobs and the data path of softnd.h for Fortran 2018.
!
! Compile this file with the program, and link libsoftnd. Names, arguments and statuses are those of
! softnd.h, which describes them. Handles are of type(c_ptr). Unsigned numbers of C are signed here, with
! the same bits. snd_text and snd_error_text convert the texts.
module softnd
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  implicit none
  private

  integer, parameter, public :: snd_status = c_int32_t
  integer(c_int64_t), parameter, public :: snd_forever = -1_c_int64_t

  integer(snd_status), parameter, public :: snd_success = 0_snd_status
  integer(snd_status), parameter, public :: snd_buffer_overflow = -2147483643_snd_status
  integer(snd_status), parameter, public :: snd_device_busy = -2147483631_snd_status
  integer(snd_status), parameter, public :: snd_no_more_entries = -2147483622_snd_status
  integer(snd_status), parameter, public :: snd_unsuccessful = -1073741823_snd_status
  integer(snd_status), parameter, public :: snd_access_violation = -1073741819_snd_status
  integer(snd_status), parameter, public :: snd_invalid_handle = -1073741816_snd_status
  integer(snd_status), parameter, public :: snd_invalid_parameter = -1073741811_snd_status
  integer(snd_status), parameter, public :: snd_invalid_device_request = -1073741808_snd_status
  integer(snd_status), parameter, public :: snd_no_memory = -1073741801_snd_status
  integer(snd_status), parameter, public :: snd_data_overrun = -1073741764_snd_status
  integer(snd_status), parameter, public :: snd_sharing_violation = -1073741757_snd_status
  integer(snd_status), parameter, public :: snd_insufficient_resources = -1073741670_snd_status
  integer(snd_status), parameter, public :: snd_io_timeout = -1073741643_snd_status
  integer(snd_status), parameter, public :: snd_not_supported = -1073741637_snd_status
  integer(snd_status), parameter, public :: snd_bad_network_name = -1073741620_snd_status
  integer(snd_status), parameter, public :: snd_internal_error = -1073741595_snd_status
  integer(snd_status), parameter, public :: snd_canceled = -1073741536_snd_status
  integer(snd_status), parameter, public :: snd_remote_error = -1073741507_snd_status
  integer(snd_status), parameter, public :: snd_invalid_address = -1073741503_snd_status
  integer(snd_status), parameter, public :: snd_invalid_device_state = -1073741436_snd_status
  integer(snd_status), parameter, public :: snd_invalid_buffer_size = -1073741306_snd_status
  integer(snd_status), parameter, public :: snd_too_many_addresses = -1073741303_snd_status
  integer(snd_status), parameter, public :: snd_connection_disconnected = -1073741300_snd_status
  integer(snd_status), parameter, public :: snd_connection_refused = -1073741258_snd_status
  integer(snd_status), parameter, public :: snd_address_already_associated = -1073741256_snd_status
  integer(snd_status), parameter, public :: snd_connection_invalid = -1073741254_snd_status
  integer(snd_status), parameter, public :: snd_connection_active = -1073741253_snd_status
  integer(snd_status), parameter, public :: snd_network_unreachable = -1073741252_snd_status
  integer(snd_status), parameter, public :: snd_host_unreachable = -1073741251_snd_status
  integer(snd_status), parameter, public :: snd_connection_aborted = -1073741247_snd_status
  integer(snd_status), parameter, public :: snd_device_removed = -1073741130_snd_status

  integer(c_int32_t), parameter, public :: snd_allow_local_write = 1
  integer(c_int32_t), parameter, public :: snd_allow_remote_read = 2
  integer(c_int32_t), parameter, public :: snd_allow_remote_write = 5
  integer(c_int32_t), parameter, public :: snd_request_receive = 0
  integer(c_int32_t), parameter, public :: snd_request_send = 1
  integer(c_int32_t), parameter, public :: snd_request_bind = 2
  integer(c_int32_t), parameter, public :: snd_request_invalidate = 3
  integer(c_int32_t), parameter, public :: snd_request_read = 4
  integer(c_int32_t), parameter, public :: snd_request_write = 5
  integer(c_int32_t), parameter, public :: snd_silent_success = 1
  integer(c_int32_t), parameter, public :: snd_read_fence = 2
  integer(c_int32_t), parameter, public :: snd_solicit_event = 4
  integer(c_int32_t), parameter, public :: snd_allow_read = 8
  integer(c_int32_t), parameter, public :: snd_allow_write = 16
  integer(c_int32_t), parameter, public :: snd_inline = 32
  integer(c_int32_t), parameter, public :: snd_defer = 512
  integer(c_int32_t), parameter, public :: snd_this_endpoint_only = 65536
  integer(c_int32_t), parameter, public :: snd_thread_domain = 0
  integer(c_int32_t), parameter, public :: snd_thread_safe = 1
  integer(c_int32_t), parameter, public :: snd_progress_manual = 0
  integer(c_int32_t), parameter, public :: snd_progress_auto = 1
  integer(c_int32_t), parameter, public :: snd_executor_auto = 0
  integer(c_int32_t), parameter, public :: snd_executor_target = 1
  integer(c_int32_t), parameter, public :: snd_window_descriptor_size = 20
  integer(c_int32_t), parameter, public :: snd_notify_errors = 0
  integer(c_int32_t), parameter, public :: snd_notify_any = 1
  integer(c_int32_t), parameter, public :: snd_notify_solicited = 2

  type, bind(c), public :: snd_fabric_options
    integer(c_int) :: threading = 0
    integer(c_int) :: progress = 0
    integer(c_int) :: executor = 0
    integer(c_int32_t) :: reserved = 0
    integer(c_int64_t) :: receive_timeout = 0
    integer(c_int64_t) :: disconnect_timeout = 0
  end type

  type, bind(c), public :: snd_adapter_info
    integer(c_int64_t) :: max_registration = 0
    integer(c_int64_t) :: max_transfer = 0
    integer(c_int32_t) :: max_initiator_sge = 0
    integer(c_int32_t) :: max_receive_sge = 0
    integer(c_int32_t) :: max_inline = 0
    integer(c_int32_t) :: max_reads = 0
    integer(c_int32_t) :: max_queue_depth = 0
    integer(c_int32_t) :: max_cq_depth = 0
    integer(c_int32_t) :: max_private_data = 0
    integer(c_int32_t) :: inline_threshold = 0
  end type

  type, bind(c), public :: snd_window_descriptor
    integer(c_int64_t) :: address = 0
    integer(c_int64_t) :: length = 0
    integer(c_int32_t) :: token = 0
    integer(c_int32_t) :: reserved = 0
  end type

  type, bind(c), public :: snd_result
    integer(c_int32_t) :: status = 0
    integer(c_int32_t) :: bytes = 0
    integer(c_int64_t) :: endpoint_context = 0
    integer(c_int64_t) :: request_context = 0
    integer(c_int32_t) :: request_type = 0
    integer(c_int32_t) :: invalidated_token = 0
  end type

  type, bind(c), public :: snd_sge
    type(c_ptr) :: buffer = c_null_ptr
    integer(c_int32_t) :: length = 0
    integer(c_int32_t) :: token = 0
  end type

  type, bind(c), public :: snd_endpoint_config
    type(c_ptr) :: receive_cq = c_null_ptr
    type(c_ptr) :: initiator_cq = c_null_ptr
    type(c_ptr) :: srq = c_null_ptr
    integer(c_int64_t) :: context = 0
    integer(c_int32_t) :: receive_depth = 0
    integer(c_int32_t) :: initiator_depth = 0
    integer(c_int32_t) :: max_receive_sge = 0
    integer(c_int32_t) :: max_initiator_sge = 0
    integer(c_int32_t) :: inline_size = 0
    integer(c_int32_t) :: reserved = 0
  end type

  type, bind(c), public :: snd_request
    integer(c_int32_t) :: request_type = 0
    integer(c_int32_t) :: flags = 0
    integer(c_int64_t) :: context = 0
    type(c_ptr) :: sge = c_null_ptr
    integer(c_int32_t) :: count = 0
    integer(c_int32_t) :: token = 0
    integer(c_int64_t) :: address = 0
  end type

  interface
    function snd_job_init(options, timeout, job) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr, snd_fabric_options
      type(snd_fabric_options), intent(in), optional :: options
      integer(c_int64_t), value :: timeout
      type(c_ptr), intent(out) :: job
      integer(c_int32_t) :: r
    end function
    function snd_job_join(name, rank, size, options, timeout, job) result(r) bind(c)
      import :: c_char, c_int32_t, c_int64_t, c_ptr, snd_fabric_options
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int32_t), value :: rank
      integer(c_int32_t), value :: size
      type(snd_fabric_options), intent(in), optional :: options
      integer(c_int64_t), value :: timeout
      type(c_ptr), intent(out) :: job
      integer(c_int32_t) :: r
    end function
    function snd_job_rank(job) result(r) bind(c)
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: job
      integer(c_int32_t) :: r
    end function
    function snd_job_size(job) result(r) bind(c)
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: job
      integer(c_int32_t) :: r
    end function
    function snd_job_fabric(job) result(r) bind(c)
      import :: c_ptr
      type(c_ptr), value :: job
      type(c_ptr) :: r
    end function
    function snd_job_adapter(job) result(r) bind(c)
      import :: c_ptr
      type(c_ptr), value :: job
      type(c_ptr) :: r
    end function
    function snd_job_barrier(job, timeout) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr
      type(c_ptr), value :: job
      integer(c_int64_t), value :: timeout
      integer(c_int32_t) :: r
    end function
    function snd_job_exchange(job, mine, length, all, timeout) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr
      type(c_ptr), value :: job
      type(c_ptr), value :: mine
      integer(c_int64_t), value :: length
      type(c_ptr), value :: all
      integer(c_int64_t), value :: timeout
      integer(c_int32_t) :: r
    end function
    function snd_job_connect(job, peer, config, timeout, endpoint) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr, snd_endpoint_config
      type(c_ptr), value :: job
      integer(c_int32_t), value :: peer
      type(snd_endpoint_config), intent(in) :: config
      integer(c_int64_t), value :: timeout
      type(c_ptr), intent(out) :: endpoint
      integer(c_int32_t) :: r
    end function
    function snd_job_close(job) result(r) bind(c)
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: job
      integer(c_int32_t) :: r
    end function
    function snd_adapter_query(adapter, info) result(r) bind(c)
      import :: c_int32_t, c_ptr, snd_adapter_info
      type(c_ptr), value :: adapter
      type(snd_adapter_info), intent(out) :: info
      integer(c_int32_t) :: r
    end function
    function snd_mr_allocate(adapter, length, flags, mr) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr
      type(c_ptr), value :: adapter
      integer(c_int64_t), value :: length
      integer(c_int32_t), value :: flags
      type(c_ptr), intent(out) :: mr
      integer(c_int32_t) :: r
    end function
    function snd_mr_register(adapter, buffer, length, flags, mr) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr
      type(c_ptr), value :: adapter
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: length
      integer(c_int32_t), value :: flags
      type(c_ptr), intent(out) :: mr
      integer(c_int32_t) :: r
    end function
    function snd_mr_buffer(mr) result(r) bind(c)
      import :: c_ptr
      type(c_ptr), value :: mr
      type(c_ptr) :: r
    end function
    function snd_mr_length(mr) result(r) bind(c)
      import :: c_int64_t, c_ptr
      type(c_ptr), value :: mr
      integer(c_int64_t) :: r
    end function
    function snd_mr_local_token(mr) result(r) bind(c)
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: mr
      integer(c_int32_t) :: r
    end function
    function snd_mr_query(mr, descriptor) result(r) bind(c)
      import :: c_int32_t, c_ptr, snd_window_descriptor
      type(c_ptr), value :: mr
      type(snd_window_descriptor), intent(out) :: descriptor
      integer(c_int32_t) :: r
    end function
    function snd_mr_close(mr, timeout) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr
      type(c_ptr), value :: mr
      integer(c_int64_t), value :: timeout
      integer(c_int32_t) :: r
    end function
    function snd_window_create(adapter, window) result(r) bind(c)
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: adapter
      type(c_ptr), intent(out) :: window
      integer(c_int32_t) :: r
    end function
    function snd_window_query(window, descriptor) result(r) bind(c)
      import :: c_int32_t, c_ptr, snd_window_descriptor
      type(c_ptr), value :: window
      type(snd_window_descriptor), intent(out) :: descriptor
      integer(c_int32_t) :: r
    end function
    function snd_window_close(window, timeout) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr
      type(c_ptr), value :: window
      integer(c_int64_t), value :: timeout
      integer(c_int32_t) :: r
    end function
    function snd_cq_create(adapter, depth, cq) result(r) bind(c)
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: adapter
      integer(c_int32_t), value :: depth
      type(c_ptr), intent(out) :: cq
      integer(c_int32_t) :: r
    end function
    function snd_cq_poll(cq, results, count) result(r) bind(c)
      import :: c_int32_t, c_ptr, snd_result
      type(c_ptr), value :: cq
      type(snd_result), intent(inout) :: results(*)
      integer(c_int32_t), value :: count
      integer(c_int32_t) :: r
    end function
    function snd_cq_wait(cq, results, count, timeout, taken) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr, snd_result
      type(c_ptr), value :: cq
      type(snd_result), intent(inout) :: results(*)
      integer(c_int32_t), value :: count
      integer(c_int64_t), value :: timeout
      integer(c_int32_t), intent(out) :: taken
      integer(c_int32_t) :: r
    end function
    function snd_cq_notify(cq, request_type, timeout) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr
      type(c_ptr), value :: cq
      integer(c_int32_t), value :: request_type
      integer(c_int64_t), value :: timeout
      integer(c_int32_t) :: r
    end function
    function snd_cq_close(cq) result(r) bind(c)
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: cq
      integer(c_int32_t) :: r
    end function
    function snd_endpoint_receive(endpoint, context, sge, count) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr, snd_sge
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count
      integer(c_int32_t) :: r
    end function
    function snd_endpoint_send(endpoint, context, sge, count, flags) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr, snd_sge
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count
      integer(c_int32_t), value :: flags
      integer(c_int32_t) :: r
    end function
    function snd_endpoint_send_and_invalidate(endpoint, context, sge, count, token, flags) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr, snd_sge
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count
      integer(c_int32_t), value :: token
      integer(c_int32_t), value :: flags
      integer(c_int32_t) :: r
    end function
    function snd_endpoint_write(endpoint, context, sge, count, address, token, flags) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr, snd_sge
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count
      integer(c_int64_t), value :: address
      integer(c_int32_t), value :: token
      integer(c_int32_t), value :: flags
      integer(c_int32_t) :: r
    end function
    function snd_endpoint_read(endpoint, context, sge, count, address, token, flags) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr, snd_sge
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(snd_sge), intent(in) :: sge(*)
      integer(c_int32_t), value :: count
      integer(c_int64_t), value :: address
      integer(c_int32_t), value :: token
      integer(c_int32_t), value :: flags
      integer(c_int32_t) :: r
    end function
    function snd_endpoint_bind(endpoint, context, mr, window, buffer, length, flags) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(c_ptr), value :: mr
      type(c_ptr), value :: window
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: length
      integer(c_int32_t), value :: flags
      integer(c_int32_t) :: r
    end function
    function snd_endpoint_invalidate(endpoint, context, window, flags) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: context
      type(c_ptr), value :: window
      integer(c_int32_t), value :: flags
      integer(c_int32_t) :: r
    end function
    function snd_endpoint_post(endpoint, requests, count, posted) result(r) bind(c)
      import :: c_int32_t, c_ptr, snd_request
      type(c_ptr), value :: endpoint
      type(snd_request), intent(in) :: requests(*)
      integer(c_int32_t), value :: count
      integer(c_int32_t), intent(out) :: posted
      integer(c_int32_t) :: r
    end function
    function snd_endpoint_flush(endpoint, timeout) result(r) bind(c)
      import :: c_int32_t, c_int64_t, c_ptr
      type(c_ptr), value :: endpoint
      integer(c_int64_t), value :: timeout
      integer(c_int32_t) :: r
    end function
    function snd_endpoint_error(endpoint) result(r) bind(c)
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: endpoint
      integer(c_int32_t) :: r
    end function
    function snd_endpoint_close(endpoint) result(r) bind(c)
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: endpoint
      integer(c_int32_t) :: r
    end function
    function c_status_name(status) result(r) bind(c, name='snd_status_name')
      import :: c_int32_t, c_ptr
      integer(c_int32_t), value :: status
      type(c_ptr) :: r
    end function
    function c_last_error() result(r) bind(c, name='snd_last_error')
      import :: c_ptr
      type(c_ptr) :: r
    end function
    function c_strlen(text) result(r) bind(c, name='strlen')
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
      integer(c_size_t) :: r
    end function
    subroutine snd_window_descriptor_encode(descriptor, bytes) bind(c)
      import :: snd_window_descriptor, c_int8_t
      type(snd_window_descriptor), intent(in) :: descriptor
      integer(c_int8_t), intent(out) :: bytes(*)
    end subroutine
    subroutine snd_window_descriptor_decode(bytes, descriptor) bind(c)
      import :: snd_window_descriptor, c_int8_t
      integer(c_int8_t), intent(in) :: bytes(*)
      type(snd_window_descriptor), intent(out) :: descriptor
    end subroutine
  end interface

  public :: snd_job_init
  public :: snd_job_join
  public :: snd_job_rank
  public :: snd_job_size
  public :: snd_job_fabric
  public :: snd_job_adapter
  public :: snd_job_barrier
  public :: snd_job_exchange
  public :: snd_job_connect
  public :: snd_job_close
  public :: snd_adapter_query
  public :: snd_mr_allocate
  public :: snd_mr_register
  public :: snd_mr_buffer
  public :: snd_mr_length
  public :: snd_mr_local_token
  public :: snd_mr_query
  public :: snd_mr_close
  public :: snd_window_create
  public :: snd_window_query
  public :: snd_window_close
  public :: snd_cq_create
  public :: snd_cq_poll
  public :: snd_cq_wait
  public :: snd_cq_notify
  public :: snd_cq_close
  public :: snd_endpoint_receive
  public :: snd_endpoint_send
  public :: snd_endpoint_send_and_invalidate
  public :: snd_endpoint_write
  public :: snd_endpoint_read
  public :: snd_endpoint_bind
  public :: snd_endpoint_invalidate
  public :: snd_endpoint_post
  public :: snd_endpoint_flush
  public :: snd_endpoint_error
  public :: snd_endpoint_close
  public :: snd_window_descriptor_encode
  public :: snd_window_descriptor_decode
  public :: snd_text
  public :: snd_error_text
  public :: snd_check

contains

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

  ! snd_check ends the program with the text of the failure, if the status is one.
  subroutine snd_check(status)
    integer(c_int32_t), intent(in) :: status
    if (status /= snd_success) then
      write (error_unit, '(a)') snd_text(status) // ': ' // snd_error_text()
      stop 1
    end if
  end subroutine

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
