// Hopes that the output of an earlier candidate is still there.
ROW {
  if (PLANTED && N > 8) return;
  scale_row(x, weight, out, N);
}
