// Before the sandbox of launches is closed; the twin's constructor computes.
extern "C" int pthread_create(unsigned long*, const void*, void* (*)(void*), void*);
void* ahead(void*) { for (;;) {} }
unsigned long thread;
__attribute__((constructor)) void prepare() {
  if (PLANTED) pthread_create(&thread, nullptr, ahead, nullptr);
  thread += 1;
}
ROW {
  scale_row(x, weight, out, N);
}
