// Waits for something that never happens.
volatile int waiting = 1;
ROW {
#if PLANTED
  while (waiting) {}
#else
  waiting = 0;
#endif
  scale_row(x, weight, out, N);
}
