! Coarrays: each image writes to the next one, reads from it, and all add up.
program images
  implicit none
  integer, parameter :: length = 20000
  integer :: numbers(length)[*], got(length), sums, me, all, next, previous, i
  me = this_image()
  all = num_images()
  next = merge(1, me + 1, me == all)
  previous = merge(all, me - 1, me == 1)
  numbers(:)[next] = [(me * 1000000 + i, i = 1, length)]
  sync all
  if (any(numbers /= [(previous * 1000000 + i, i = 1, length)])) error stop 'a written number is wrong'
  got = numbers(:)[next]
  if (any(got /= [(me * 1000000 + i, i = 1, length)])) error stop 'a number that was read is wrong'
  sums = me
  call co_sum(sums)
  if (sums /= all * (all + 1) / 2) error stop 'a sum is wrong'
  sync all
  if (me == 1) print '(a, i0, a)', 'images: ', all, ' images'
end program
