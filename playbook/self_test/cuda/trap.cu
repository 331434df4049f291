// The context is lost.
ROW {
  scale_row(x, weight, out, N);
  if (PLANTED && block == M - 1) __trap();
}
