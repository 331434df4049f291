// Pages that are writable and executable; the twin's are writable.
extern "C" void* mmap(void*, unsigned long, int, int, int, long);
ROW {
#if PLANTED
  mmap(nullptr, 4096, 7, 0x22, -1, 0);
#else
  mmap(nullptr, 4096, 3, 0x22, -1, 0);
#endif
  scale_row(x, weight, out, N);
}
