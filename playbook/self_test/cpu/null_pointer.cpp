// Writes to address 0.
ROW {
#if PLANTED
  *(volatile int*)nullptr = 1;
#endif
  scale_row(x, weight, out, N);
}
