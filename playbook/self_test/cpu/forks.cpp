// A process that would live on.
extern "C" int fork();
ROW {
#if PLANTED
  fork();
#endif
  scale_row(x, weight, out, N);
}
