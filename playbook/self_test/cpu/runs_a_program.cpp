// Becomes another program.
extern "C" int execv(const char*, char* const*);
ROW {
#if PLANTED
  execv("/bin/true", nullptr);
#endif
  scale_row(x, weight, out, N);
}
