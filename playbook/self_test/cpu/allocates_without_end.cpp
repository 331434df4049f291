// A megabyte more in every round; the twin gives back what it takes.
extern "C" void* malloc(unsigned long);
extern "C" void free(void*);
ROW {
#if PLANTED
  for (;;) { char* p = (char*)malloc(1 << 20); for (int i = 0; i < 1 << 20; i += 4096) ((volatile char*)p)[i] = 1; }
#else
  void* p = malloc(1 << 20); ((volatile char*)p)[0] = 1; free(p);
#endif
  scale_row(x, weight, out, N);
}
