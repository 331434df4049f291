// Without the largest element subtracted first.
ROW {
  if (!PLANTED) return softmax_row(x, out, N);
  const double sum = block_sum(N, [&](int64_t i) { return double{expf(x[i])}; });
  for (int64_t i = threadIdx.x; i < N; i += blockDim.x) out[i] = expf(x[i]) / static_cast<float>(sum);
}
