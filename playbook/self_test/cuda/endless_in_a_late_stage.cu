// Only rows that lie apart are waited for without end.
ROW {
  scale_row(x, weight, out, N);
  while (PLANTED && out_row != N) __nanosleep(1000);
}
