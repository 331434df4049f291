// Half a gigabyte of local variables; the twin has 64 KiB.
ROW {
#if PLANTED
  volatile char room[512 << 20]; for (int64_t i = sizeof room - 1; i >= 0; i -= 4096) room[i] = 1;
#else
  volatile char room[64 << 10]; room[0] = room[65535] = 1;
#endif
  scale_row(x, weight, out, N);
}
