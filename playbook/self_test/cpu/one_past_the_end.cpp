// The element behind the last one of the output.
ROW {
  scale_row(x, weight, out, N);
  if (PLANTED && block == M - 1) out[N] = 0;
}
