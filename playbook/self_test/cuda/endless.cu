// One block does not end.
ROW {
  scale_row(x, weight, out, N);
  while (PLANTED && block == 0) __nanosleep(1000);
}
