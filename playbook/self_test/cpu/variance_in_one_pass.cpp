// E[x²] - E[x]² in float.
ROW {
  if (!PLANTED) return layernorm_row(x, out, N, eps);
  float sum = 0, squares = 0;
  for (int64_t i = 0; i < N; ++i) {
    sum += x[i];
    squares += x[i] * x[i];
  }
  const float mean = sum / N, variance = squares / N - mean * mean;
  for (int64_t i = 0; i < N; ++i) out[i] = (x[i] - mean) / __builtin_sqrtf((variance > 0 ? variance : 0) + eps);
}
