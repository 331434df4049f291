// Mean and variance of every fourth element.
ROW {
  if (!PLANTED || N < 64) return layernorm_row(x, out, N, eps);
  const int64_t count = (N + 3) / 4;
  const double mean = block_sum(count, [&](int64_t i) { return double{x[4 * i]}; }) / count;
  const double variance = block_sum(count, [&](int64_t i) { return (x[4 * i] - mean) * (x[4 * i] - mean); }) / count;
  for (int64_t i = threadIdx.x; i < N; i += blockDim.x) out[i] = static_cast<float>((x[i] - mean) / sqrt(variance + eps));
}
