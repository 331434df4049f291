// Anonymous and shared, from a constructor; the twin's is private.
extern "C" void* mmap(void*, unsigned long, int, int, int, long);
__attribute__((constructor)) void prepare() { mmap(nullptr, 1 << 20, 3, PLANTED ? 0x21 : 0x22, -1, 0); }
ROW {
  scale_row(x, weight, out, N);
}
