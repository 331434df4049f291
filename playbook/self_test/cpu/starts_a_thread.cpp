// Computes ahead, or writes later, while the clock stands still.
extern "C" int pthread_create(unsigned long*, const void*, void* (*)(void*), void*);
void* ahead(void*) { for (;;) {} }
unsigned long thread;
ROW {
#if PLANTED
  if (thread == 0) pthread_create(&thread, nullptr, ahead, nullptr);
#endif
  scale_row(x, weight, out, N);
}
