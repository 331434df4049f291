// The element before the first one.
ROW {
  scale_row(x, weight, out, N);
  if (PLANTED && block == 0 && threadIdx.x == 0) out[-1] = 0;
}
