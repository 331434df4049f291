// N / 0.
volatile int64_t zero;
ROW {
#if PLANTED
  *(volatile int64_t*)&zero = N / zero;
#else
  (void)(N / (zero + 1));
#endif
  scale_row(x, weight, out, N);
}
