// As a failed assertion does.
extern "C" void abort();
ROW {
#if PLANTED
  abort();
#endif
  scale_row(x, weight, out, N);
}
