// Without the largest element subtracted first.
ROW {
  if (!PLANTED) return softmax_row(x, out, N);
  float sum = 0;
  for (int64_t i = 0; i < N; ++i) sum += out[i] = __builtin_expf(x[i]);
  for (int64_t i = 0; i < N; ++i) out[i] /= sum;
}
