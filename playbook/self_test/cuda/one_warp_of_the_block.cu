// A shuffle reaches the lanes of its warp: every warp takes its own sums for those of the block.
ROW {
  if (!PLANTED) return layernorm_row(x, out, N, eps);
  double mean = 0, variance = 0;
  for (int64_t i = threadIdx.x; i < N; i += blockDim.x) mean += x[i];
  mean = ak::warp_reduce<ak::Sum>(mean) / N;
  for (int64_t i = threadIdx.x; i < N; i += blockDim.x) variance += (x[i] - mean) * (x[i] - mean);
  variance = ak::warp_reduce<ak::Sum>(variance) / N;
  for (int64_t i = threadIdx.x; i < N; i += blockDim.x) out[i] = static_cast<float>((x[i] - mean) / sqrt(variance + eps));
}
