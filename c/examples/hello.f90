! Each rank writes a word into the memory of the other: ndrun -n 2 ./hello
program hello
  use, intrinsic :: iso_c_binding
  use softnd
  implicit none
  integer(c_int64_t), parameter :: limit = 30000000000_c_int64_t
  type(c_ptr) :: job, adapter, mr, cq, endpoint
  type(snd_window_descriptor) :: mine, all(0:1)
  type(snd_endpoint_config) :: config
  type(snd_sge) :: sge(1)
  type(snd_result) :: results(1)
  integer(c_int64_t), pointer :: words(:)
  integer(c_int32_t) :: rank, other, taken

  call snd_check(snd_job_init(timeout=limit, job=job))
  if (snd_job_size(job) /= 2) error stop 'start two ranks: ndrun -n 2 ./hello'
  rank = snd_job_rank(job)
  other = 1 - rank
  adapter = snd_job_adapter(job)
  call snd_check(snd_mr_allocate(adapter, 4096_c_int64_t, ior(snd_allow_local_write, snd_allow_remote_write), mr))
  call c_f_pointer(snd_mr_buffer(mr), words, [512])
  call snd_check(snd_mr_query(mr, mine))
  call snd_check(snd_job_exchange_windows(job, mine, all, limit))

  call snd_check(snd_cq_create(adapter, 16, cq))
  config%receive_cq = cq
  config%initiator_cq = cq
  call snd_check(snd_job_connect(job, other, config, limit, endpoint))
  words(1) = 42 + rank
  sge(1) = snd_sge(c_loc(words(1)), 8, snd_mr_local_token(mr))
  call snd_check(snd_endpoint_write(endpoint, 1_c_int64_t, sge, 1, all(other)%address + 8, all(other)%token, 0))
  call snd_check(snd_cq_wait(cq, results, 1, limit, taken))
  if (results(1)%status /= snd_success) call snd_check(snd_endpoint_error(endpoint))
  call snd_check(snd_job_barrier(job, limit))
  print '(a, i0, a, i0)', 'rank ', rank, ' has ', words(2)
  call snd_check(snd_job_close(job))
end program
