// Only the first half of the rows is computed.
ROW {
  if (PLANTED && block >= M / 2 && M > 1) return;
  scale_row(x, weight, out, N);
}
