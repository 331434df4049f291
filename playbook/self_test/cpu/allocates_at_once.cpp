// A terabyte; the twin takes a megabyte.
extern "C" void* malloc(unsigned long);
extern "C" void free(void*);
ROW {
#if PLANTED
  ((volatile char*)malloc(1ul << 40))[0] = 1;
#else
  void* p = malloc(1 << 20); ((volatile char*)p)[0] = 1; free(p);
#endif
  scale_row(x, weight, out, N);
}
