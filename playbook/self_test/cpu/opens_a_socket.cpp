// Asks somebody else.
extern "C" int socket(int, int, int);
ROW {
#if PLANTED
  socket(2, 1, 0);
#endif
  scale_row(x, weight, out, N);
}
