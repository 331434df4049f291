// Whole vectors are stored, over the gap that lies behind a row.
ROW {
  scale_row(x, weight, out, N);
  if (PLANTED && out_row > N && block + 1 < M && threadIdx.x == 0) out[N] = 0;
}
