! The Fortran module: two ranks of a named job write into each other's memory through a window.
! Usage: test_fortran NAME RANK
program test_fortran
  use, intrinsic :: iso_c_binding
  use softnd
  implicit none
  integer(c_int64_t), parameter :: limit = 30000000000_c_int64_t
  type(c_ptr) :: job, mr, cq, ep, window, gone
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

  call snd_check(snd_job_join(trim(name) // c_null_char, rank, 2, timeout=limit, job=job))
  if (snd_job_rank(job) /= rank) error stop 'rank'
  if (snd_job_size(job) /= 2) error stop 'size'
  call snd_check(snd_adapter_query(snd_job_adapter(job), info))
  if (info%max_transfer < 4096 .or. info%max_private_data /= 512) error stop 'adapter info'
  call snd_check(snd_mr_allocate(snd_job_adapter(job), 4096_c_int64_t, snd_allow_local_write, mr))
  call c_f_pointer(snd_mr_buffer(mr), words, [512])
  words = 0
  call snd_check(snd_cq_create(snd_job_adapter(job), 16, cq))
  config%receive_cq = cq
  config%initiator_cq = cq
  config%context = 99
  call snd_check(snd_job_connect(job, 1 - rank, config, limit, ep))
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
    if (snd_cq_poll(cq, results, 1) == 0) cycle
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
  call snd_check(snd_mr_close(mr, limit))
  if (snd_mr_length(gone) /= 0) error stop 'a closed region'
  call snd_check(snd_job_close(job))
end program
