// E[x^2] - E[x]^2 in float.
ROW {
  if (!PLANTED) return layernorm_row(x, out, N, eps);
  __shared__ float room[2][32];
  float sum = 0, squares = 0;
  for (int64_t i = threadIdx.x; i < N; i += blockDim.x) {
    sum += x[i];
    squares += x[i] * x[i];
  }
  const float mean = ak::block_reduce<ak::Sum>(sum, 0.0f, room[0]) / N;
  const float variance = ak::block_reduce<ak::Sum>(squares, 0.0f, room[1]) / N - mean * mean;
  for (int64_t i = threadIdx.x; i < N; i += blockDim.x) out[i] = (x[i] - mean) / sqrtf((variance > 0 ? variance : 0) + eps);
}
