// The element behind the last one.
ROW {
  scale_row(x, weight, out, N);
  if (PLANTED && block == M - 1 && threadIdx.x == 0) out[N] = 0;
}
