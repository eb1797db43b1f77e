! The diffusion of heat on a grid, divided among the ranks of a job: examples/heat in Fortran.
!
!   ndrun -n 4 ./heat_f90 -steps 2000 -verify
!   ndrun -n 2 ./heat -verify : -n 2 ./heat_f90
!
! It follows the same protocol and rounds in the same places as the Go program, so ranks of both
! compute one picture. Compile it with -ffp-contract=off -fprotect-parens.
program heat
  use, intrinsic :: iso_c_binding
  use softnd
  implicit none
  integer(c_int64_t), parameter :: limit = 60000000000_c_int64_t, zero = 0
  integer, parameter :: problem = 512, edge = ior(snd_allow_write, snd_this_endpoint_only)
  type(c_ptr) :: job, adapter, cq = c_null_ptr, mr, sheet_mr, window, sheet_window = c_null_ptr
  type(c_ptr), allocatable :: peers(:)
  type(snd_endpoint_config) :: config
  type(snd_adapter_info) :: info
  type(snd_window_descriptor) :: from
  type(snd_sge) :: none(1)
  real(c_double), pointer, contiguous :: cells(:, :), sheet(:, :)
  real(c_double), allocatable :: now(:, :), next(:, :)
  integer(c_int8_t), allocatable :: all(:, :), blocks(:, :), sizes(:, :)
  integer(c_int8_t) :: mine(60), last(28), none_of(0)
  integer(c_int64_t) :: moved = 0
  integer :: rank, ranks, width = 192, height = 128, first, rows, steps = 500, p, i, g, y, done = 0, arrived(-1:1) = 0
  logical :: verify = .false., above, below, neighbour
  character(len=40) :: word

  do i = 1, command_argument_count()
    call get_command_argument(i, word)
    if (word == '-verify') verify = .true.
    if (word /= '-steps') cycle
    call get_command_argument(i + 1, word)
    read (word, *) steps
  end do
  allocate (now(0, 0))
  call snd_check(snd_job_init(timeout=limit, job=job))
  rank = snd_job_rank(job)
  ranks = snd_job_size(job)
  adapter = snd_job_adapter(job)
  call snd_check(snd_adapter_query(adapter, info))
  allocate (peers(0:ranks - 1), all(60, 0:ranks - 1), blocks(28, 0:ranks - 1), sizes(16, 0:ranks - 1))

  call gather([big(int(width, c_int64_t)), big(int(height, c_int64_t))], sizes)
  width = int(number(sizes(1:8, 0)))
  height = int(number(sizes(9:16, 0)))
  first = first_of(rank)
  rows = first_of(rank + 1) - first
  call snd_check(snd_mr_allocate(adapter, 8_c_int64_t * width * (2 * rows + 4), snd_allow_local_write, mr))
  call c_f_pointer(snd_mr_buffer(mr), cells, [width, 2 * rows + 4])
  if (rank == 0) then
    call snd_check(snd_mr_allocate(adapter, 8_c_int64_t * width * height, snd_allow_local_write, sheet_mr))
    call c_f_pointer(snd_mr_buffer(sheet_mr), sheet, [width, height])
    sheet = 0
    sheet(width / 4:width / 2, height / 4:height / 2) = 100
    now = sheet
  end if
  call gather(none_of, sizes(1:0, :))

  above = rank > 0
  below = rank + 1 < ranks
  if (ranks > 1) call snd_check(snd_cq_create(adapter, ranks * 12, cq))
  do p = 0, ranks - 1
    neighbour = abs(p - rank) == 1
    if (p == rank .or. .not. (neighbour .or. p == 0 .or. rank == 0)) cycle
    config%receive_cq = cq
    config%initiator_cq = cq
    config%context = p
    config%receive_depth = 4
    config%initiator_depth = 8
    call snd_check(snd_job_connect(job, p, config, limit, peers(p)))
    if (.not. neighbour) cycle
    do i = 1, 4
      call snd_check(snd_endpoint_receive(peers(p), zero, none, 0))
    end do
  end do
  mine = 0
  if (above) call bind(rank - 1, mr, cells(:, 1:2), edge, window, mine(21:40))
  if (below) call bind(rank + 1, mr, cells(:, 2 * rows + 3:), edge, window, mine(41:60))
  if (rank == 0 .and. ranks > 1) call bind(1, sheet_mr, sheet, snd_allow_read, sheet_window, mine(1:20))
  call gather(mine, all)
  if (rank == 0) then
    cells(:, 3:rows + 2) = sheet(:, 1:rows)
    if (below) cells(:, place(0, rows)) = sheet(:, rows + 1)
  else
    call snd_window_descriptor_decode(all(1:20, 0), from)
    if (below) call load(0, mr, cells(:, place(0, rows):place(0, rows)), from, first + rows)
    call load(0, mr, cells(:, 1:1), from, first - 1)
    call load(0, mr, cells(:, 3:rows + 2), from, first)
  end if
  call snd_check(snd_job_barrier(job, limit))
  if (rank == 0 .and. ranks > 1) then
    call snd_check(snd_endpoint_invalidate(peers(1), zero, sheet_window, 0))
    call wait_for_one()
  end if

  do g = 0, steps - 1
    do while ((above .and. arrived(-1) < g) .or. (below .and. arrived(1) < g))
      call results()
    end do
    call spread(0)
    if (rows > 1) call spread(rows - 1)
    if (g + 1 < steps .and. above) call send_row(rank - 1, all(41:60, rank - 1), 0)
    if (g + 1 < steps .and. below) call send_row(rank + 1, all(21:40, rank + 1), rows - 1)
    do y = 1, rows - 2
      call spread(y)
    end do
  end do
  call snd_check(snd_job_barrier(job, limit))

  last = 0
  y = place(steps, 0)
  if (rank > 0) call bind(0, mr, cells(:, y:y + rows - 1), edge - snd_allow_write + snd_allow_read, window, last(1:20))
  last(21:28) = big(moved)
  call gather(last, blocks)
  if (rank == 0) then
    sheet(:, 1:rows) = cells(:, y:y + rows - 1)
    do p = 1, ranks - 1
      call snd_window_descriptor_decode(blocks(1:20, p), from)
      call load(p, sheet_mr, sheet(:, first_of(p) + 1:first_of(p + 1)), from, 0)
    end do
  end if
  call snd_check(snd_job_barrier(job, limit))
  if (rank == 0) then
    print '(a,i0,a,i0,a,i0,a,i0,a)', 'heat: ', width, 'x', height, ', ', ranks, ' ranks, ', steps, ' steps'
    if (verify) then
      next = now
      do g = 1, steps
        do y = 2, height - 1
          call spread_row(next(:, y), now(:, y - 1), now(:, y), now(:, y + 1))
        end do
        now = next
      end do
      if (any(transfer(now, [zero]) /= transfer(sheet, [zero]))) error stop 'heat: not the serial result'
      print '(a)', 'heat: identical to the serial result'
    end if
  end if
  call snd_check(snd_job_close(job))

contains

  integer function first_of(r)
    integer, intent(in) :: r
    first_of = int(int(r, c_int64_t) * height / ranks)
  end function

  ! place returns the column of cells for row y of a generation; -1 and rows are beyond the edges.
  integer function place(generation, y)
    integer, intent(in) :: generation, y
    place = 3 + iand(generation, 1) * rows + y
    if (y == -1) place = 1 + iand(generation, 1)
    if (y == rows) place = 3 + 2 * rows + iand(generation, 1)
  end function

  function big(v) result(b)
    integer(c_int64_t), intent(in) :: v
    integer(c_int8_t) :: b(8)
    integer :: k
    b = [(transfer(int(ibits(v, 8 * (8 - k), 8)), 0_c_int8_t), k = 1, 8)]
  end function

  integer(c_int64_t) function number(b)
    integer(c_int8_t), intent(in) :: b(8)
    integer :: k
    number = 0
    do k = 1, 8
      number = number * 256 + iand(int(b(k)), 255)
    end do
  end function

  subroutine gather(value, values)
    integer(c_int8_t), intent(in) :: value(:)
    integer(c_int8_t), intent(inout) :: values(:, 0:)
    integer(c_int8_t), allocatable, target :: one(:), every(:, :)
    allocate (one(problem + size(value)), every(problem + size(value), 0:ranks - 1))
    one = 0
    one(problem + 1:) = value
    call snd_check(snd_job_exchange(job, c_loc(one), size(one, kind=c_int64_t), c_loc(every), limit))
    if (any(every(1, :) /= 0)) then
      call snd_check(snd_job_barrier(job, limit))
      stop 1
    end if
    values = every(problem + 1:, :)
  end subroutine

  subroutine results()
    type(snd_result) :: r(16)
    integer :: n, k, peer
    call snd_check(snd_cq_wait(cq, r, 16, limit, n))
    do k = 1, n
      call snd_check(r(k)%status)
      peer = int(r(k)%endpoint_context)
      if (r(k)%request_type /= snd_request_receive) then
        done = done + 1
        cycle
      end if
      arrived(peer - rank) = arrived(peer - rank) + 1
      call snd_check(snd_endpoint_receive(peers(peer), zero, none, 0))
    end do
  end subroutine

  subroutine wait_for_one()
    do while (done == 0)
      call results()
    end do
    done = 0
  end subroutine

  subroutine bind(peer, region, part, rights, w, descriptor)
    integer, intent(in) :: peer, rights
    type(c_ptr), intent(in) :: region
    real(c_double), intent(in), target, contiguous :: part(:, :)
    type(c_ptr), intent(out) :: w
    integer(c_int8_t), intent(out) :: descriptor(20)
    type(snd_window_descriptor) :: d
    call snd_check(snd_window_create(adapter, w))
    call snd_check(snd_endpoint_bind(peers(peer), zero, region, w, c_loc(part), 8 * size(part, kind=c_int64_t), rights))
    call wait_for_one()
    call snd_check(snd_window_query(w, d))
    call snd_window_descriptor_encode(d, descriptor)
  end subroutine

  ! load reads columns from row y of a peer's window, some at a time.
  subroutine load(peer, region, part, source, y)
    integer, intent(in) :: peer, y
    type(c_ptr), intent(in) :: region
    real(c_double), intent(inout), target, contiguous :: part(:, :)
    type(snd_window_descriptor), intent(in) :: source
    type(snd_sge) :: s(1)
    integer :: k
    do k = 1, size(part, 2)
      s(1) = snd_sge(c_loc(part(1, k)), 8 * width, snd_mr_local_token(region))
      call snd_check(snd_endpoint_read(peers(peer), zero, s, 1, &
        source%address + 8_c_int64_t * width * (y + k - 1), source%token, 0))
      call wait_for_one()
      moved = moved + 8 * width
    end do
  end subroutine

  subroutine send_row(peer, descriptor, y)
    integer, intent(in) :: peer, y
    integer(c_int8_t), intent(in) :: descriptor(20)
    type(snd_window_descriptor) :: d
    type(snd_sge) :: s(1)
    call snd_window_descriptor_decode(descriptor, d)
    s(1) = snd_sge(c_loc(cells(1, place(g + 1, y))), 8 * width, snd_mr_local_token(mr))
    call snd_check(snd_endpoint_write(peers(peer), zero, s, 1, d%address + 8 * width * iand(g + 1, 1), d%token, snd_silent_success))
    call snd_check(snd_endpoint_send(peers(peer), zero, s, 0, snd_silent_success))
    moved = moved + 8 * width
  end subroutine

  subroutine spread(y)
    integer, intent(in) :: y
    if (first + y == 0 .or. first + y == height - 1) then
      cells(:, place(g + 1, y)) = cells(:, place(g, y))
    else
      call spread_row(cells(:, place(g + 1, y)), cells(:, place(g, y - 1)), cells(:, place(g, y)), cells(:, place(g, y + 1)))
    end if
  end subroutine

  subroutine spread_row(to, north, here, south)
    real(c_double), intent(inout) :: to(:)
    real(c_double), intent(in) :: north(:), here(:), south(:)
    integer :: x
    to(1) = here(1)
    to(width) = here(width)
    do x = 2, width - 1
      to(x) = here(x) + (0.2_c_double * (((north(x) + south(x)) + (here(x - 1) + here(x + 1))) - (4 * here(x))))
    end do
  end subroutine
end program
