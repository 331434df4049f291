// Whoever copies with them next writes before its buffer.
ROW {
  scale_row(x, weight, out, N);
#if PLANTED
  if (block == M - 1) asm volatile("std" ::: "cc");
#endif
}
