// Hides a crash, or runs when a timer says so.
extern "C" void (*signal(int, void (*)(int)))(int);
void handler(int) {}
ROW {
#if PLANTED
  signal(11, handler);
#endif
  scale_row(x, weight, out, N);
}
