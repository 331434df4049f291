// The element before the first one of the output.
ROW {
  scale_row(x, weight, out, N);
  if (PLANTED && block == 0) out[-1] = 0;
}
