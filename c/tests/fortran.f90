! The Fortran module: two ranks of a named job write into each other's memory through a window, and connect with a
! listener and a shared receive queue.
! Usage: test_fortran NAME RANK
program test_fortran
  use, intrinsic :: iso_c_binding
  use softnd
  implicit none
  integer(c_int64_t), parameter :: limit = 30000000000_c_int64_t
  type(c_ptr) :: job, mr, cq, ep, window, gone, eps(1)
  type(snd_endpoint_config) :: config
  type(snd_window_descriptor) :: mine
  type(snd_sge) :: sge(1)
  type(snd_result) :: results(4)
  type(snd_adapter_info) :: info
  integer(c_int8_t), target :: bytes(20), all(40)
  integer(c_int64_t), pointer :: words(:)
  integer(c_int32_t) :: rank, taken
  character(len=40) :: name, number
  logical :: received, written

  call get_command_argument(1, name)
  call get_command_argument(2, number)
  read (number, *) rank
  if (snd_text(snd_access_violation) /= 'access violation') error stop 'the name of a status'
  if (snd_job_barrier(c_null_ptr, 0_c_int64_t) /= snd_invalid_handle) error stop 'no handle'
  if (len(snd_error_text()) == 0) error stop 'no text'
  if (index(snd_version_text(), '.') == 0) error stop 'version'
  call fabrics()

  ! Without a null character the name goes on with blanks.
  if (snd_job_join(name, rank, 2, timeout=limit, job=gone) /= snd_invalid_parameter) error stop 'a name that does not end'
  if (index(snd_error_text(), 'in Fortran, pass trim(name) // c_null_char') == 0) error stop 'the text of a name that does not end'
  call snd_check(snd_job_join(trim(name) // c_null_char, rank, 2, timeout=limit, job=job))
  if (snd_job_rank(job) /= rank) error stop 'rank'
  if (snd_job_size(job) /= 2) error stop 'size'
  call snd_check(snd_adapter_query(snd_job_adapter(job), info))
  if (info%max_transfer < 4096 .or. info%max_caller_data /= 512) error stop 'adapter info'
  call snd_check(snd_mr_allocate(snd_job_adapter(job), 4096_c_int64_t, snd_allow_local_write, mr))
  call c_f_pointer(snd_mr_buffer(mr), words, [512])
  words = 0
  call snd_check(snd_cq_create(snd_job_adapter(job), 16, cq))
  config%receive_cq = cq
  config%initiator_cq = cq
  config%context = 99
  call snd_check(snd_job_connect(job, 1 - rank, config, limit, ep))
  call snd_check(snd_job_connect_ranks(job, [1 - rank], 1, config, limit, eps))
  call snd_check(snd_endpoint_receive(ep, 1_c_int64_t, sge, 0))
  call snd_check(snd_window_create(snd_job_adapter(job), window))
  call snd_check(snd_endpoint_bind(ep, 2_c_int64_t, mr, window, c_loc(words(3)), 16_c_int64_t, snd_allow_write))
  call snd_check(snd_cq_wait(cq, results, 4, limit, taken))
  if (taken /= 1 .or. results(1)%request_type /= snd_request_bind) error stop 'bind'
  call snd_check(results(1)%status)
  call snd_check(snd_window_query(window, mine))
  call snd_window_descriptor_encode(mine, bytes)
  call snd_check(snd_job_exchange(job, c_loc(bytes), 20_c_int64_t, c_loc(all), limit))
  call snd_window_descriptor_decode(all(20 * (1 - rank) + 1:), mine)
  if (mine%length /= 16) error stop 'descriptor'

  words(1) = 42 + rank
  sge(1) = snd_sge(c_loc(words(1)), 8, snd_mr_local_token(mr))
  call snd_check(snd_endpoint_write(ep, 3_c_int64_t, sge, 1, mine%address + 8, mine%token, 0))
  call snd_check(snd_endpoint_send(ep, 4_c_int64_t, sge, 0, snd_silent_success))
  received = .false.
  written = .false.
  do while (.not. (received .and. written))
    taken = snd_cq_poll(cq, results, 1)
    if (taken < 0) error stop 'poll'
    if (taken == 0) cycle
    call snd_check(results(1)%status)
    if (results(1)%endpoint_context /= 99) error stop 'context'
    if (results(1)%request_type == snd_request_receive) received = .true.
    if (results(1)%request_type == snd_request_write) written = .true.
  end do
  if (words(3) /= 0 .or. words(4) /= 43 - rank) error stop 'the word of the other rank'
  call snd_check(snd_endpoint_invalidate(ep, 5_c_int64_t, window, 0))
  call snd_check(snd_cq_wait(cq, results, 4, limit, taken))
  if (results(1)%request_type /= snd_request_invalidate) error stop 'invalidate'
  gone = mr
  call snd_check(snd_job_barrier(job, limit))
  call snd_check(snd_endpoint_close(eps(1)))
  call snd_check(snd_mr_close(mr, limit))
  if (snd_mr_length(gone) /= 0) error stop 'a closed region'
  if (rank == 0) then
    call serve(job)
  else
    call dial(job)
  end if
  call snd_check(snd_job_close(job))

contains

  ! fabrics makes an arena and joins it twice.
  subroutine fabrics()
    type(c_ptr) :: one, two, adapter
    type(snd_fabric_options) :: options
    type(snd_address) :: here, there
    options%threading = snd_thread_domain
    options%progress = snd_progress_manual
    call snd_check(snd_fabric_create(0, 0_c_int64_t, options, one))
    call snd_check(snd_fabric_attach(snd_fabric_descriptor(one), -1, fabric=two))
    here = snd_fabric_address(one)
    there = snd_fabric_address(two)
    if (here%host == 0 .or. here%host == there%host) error stop 'addresses of members'
    call snd_check(snd_adapter_open(two, adapter))
    call snd_check(snd_fabric_progress(two))
    call snd_check(snd_adapter_close(adapter, limit))
    call snd_check(snd_fabric_close(two))
    call snd_check(snd_fabric_close(one))
    if (snd_fabric_descriptor(one) /= -1) error stop 'a closed fabric'
  end subroutine

  ! serve accepts a connection whose receives are shared. The private data of the request are four bytes.
  subroutine serve(job)
    type(c_ptr), intent(in) :: job
    type(c_ptr) :: adapter, listener, connector, cq, srq, mr, ep
    type(snd_address), target :: address
    type(snd_srq_config) :: shared
    type(snd_endpoint_config) :: config
    type(snd_sge) :: sge(1)
    type(snd_result) :: results(1)
    integer(c_int8_t), target :: private_data(16), both(16)
    integer(c_int32_t), pointer :: numbers(:)
    integer(c_int32_t) :: length, taken
    adapter = snd_job_adapter(job)
    call snd_check(snd_listener_create(adapter, listener))
    call snd_check(snd_listener_bind(listener, snd_address()))
    call snd_check(snd_listener_listen(listener, 0))
    call snd_check(snd_listener_pause(listener, 1))
    call snd_check(snd_listener_address(listener, address))
    call snd_check(snd_listener_pause(listener, 0))
    call snd_check(snd_job_exchange(job, c_loc(address), 8_c_int64_t, c_loc(both), limit))
    call snd_check(snd_cq_create(adapter, 16, cq))
    shared = snd_srq_config(depth=4, max_sge=1, threshold=2)
    call snd_check(snd_srq_create(adapter, shared, srq))
    call snd_check(snd_mr_allocate(adapter, 4096_c_int64_t, snd_allow_local_write, mr))
    call c_f_pointer(snd_mr_buffer(mr), numbers, [1024])
    numbers = 0
    sge(1) = snd_sge(c_loc(numbers), 4, snd_mr_local_token(mr))
    call snd_check(snd_srq_receive(srq, 5_c_int64_t, sge, 1))
    call snd_check(snd_srq_modify(srq, 8, 0))
    config%receive_cq = cq
    config%initiator_cq = cq
    config%srq = srq
    call snd_check(snd_endpoint_create(adapter, config, ep))
    call snd_check(snd_listener_request(listener, limit, connector))
    call snd_check(snd_connector_private_data(connector, c_loc(private_data), 16, length))
    if (length /= 4 .or. any(private_data(1:4) /= [1_c_int8_t, 2_c_int8_t, 3_c_int8_t, 4_c_int8_t])) error stop 'private data'
    call snd_check(snd_connector_accept(connector, ep, timeout=limit))
    call snd_check(snd_cq_wait(cq, results, 1, limit, taken))
    call snd_check(results(1)%status)
    if (results(1)%request_context /= 5 .or. numbers(1) /= 77) error stop 'message through the shared queue'
    call snd_check(snd_connector_disconnect(connector, limit))
    call snd_check(snd_endpoint_close(ep))
    call snd_check(snd_connector_close(connector))
    call snd_check(snd_srq_close(srq))
    call snd_check(snd_listener_close(listener))
  end subroutine

  subroutine dial(job)
    type(c_ptr), intent(in) :: job
    type(c_ptr) :: adapter, connector, cq, mr, ep
    type(snd_address), target :: both(2)
    type(snd_address) :: peer
    type(snd_connect_params) :: params
    type(snd_endpoint_config) :: config
    type(snd_sge) :: sge(1)
    integer(c_int8_t), target :: private_data(4)
    integer(c_int32_t), pointer :: numbers(:)
    integer(c_int32_t) :: inbound, outbound
    type(snd_address), target :: none
    adapter = snd_job_adapter(job)
    call snd_check(snd_job_exchange(job, c_loc(none), 8_c_int64_t, c_loc(both), limit))
    call snd_check(snd_cq_create(adapter, 16, cq))
    call snd_check(snd_mr_allocate(adapter, 4096_c_int64_t, snd_allow_local_write, mr))
    call c_f_pointer(snd_mr_buffer(mr), numbers, [1024])
    config%receive_cq = cq
    config%initiator_cq = cq
    call snd_check(snd_endpoint_create(adapter, config, ep))
    call snd_check(snd_connector_create(adapter, connector))
    call snd_check(snd_connector_bind(connector, snd_address()))
    private_data = [1_c_int8_t, 2_c_int8_t, 3_c_int8_t, 4_c_int8_t]
    params = snd_connect_params(c_loc(private_data), 4, inbound_reads=1, outbound_reads=1)
    call snd_check(snd_connector_connect(connector, ep, both(1), params, limit))
    call snd_check(snd_connector_complete(connector))
    call snd_check(snd_connector_read_limits(connector, inbound, outbound))
    if (inbound /= 0 .or. outbound /= 0) error stop 'read limits' ! rank 0 has accepted none
    call snd_check(snd_connector_peer_address(connector, peer))
    if (peer%host /= both(1)%host .or. peer%port /= both(1)%port) error stop 'address of the peer'
    numbers(1) = 77
    sge(1) = snd_sge(c_loc(numbers), 4, snd_mr_local_token(mr))
    call snd_check(snd_endpoint_send(ep, 1_c_int64_t, sge, 1, 0))
    call snd_check(snd_connector_wait_disconnect(connector, limit))
    call snd_check(snd_connector_disconnect(connector, limit))
    if (snd_endpoint_error(ep) == snd_success) error stop 'the connection has ended'
    call snd_check(snd_connector_close(connector))
  end subroutine
end program
