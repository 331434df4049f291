// The context is lost.
ROW {
  scale_row(x, weight, out, N);
  assert(!PLANTED || block != 1);
}
