// A constructor that never returns; the twin's does.
extern "C" unsigned sleep(unsigned);
int ready;
__attribute__((constructor)) void prepare() { ready = PLANTED ? sleep(100000) : 1; }
ROW {
#if PLANTED
  (void)ready;
#endif
  scale_row(x, weight, out, N);
}
