// One element of one row keeps what was there before.
ROW {
  for (int64_t i = threadIdx.x; i < N; i += blockDim.x) {
    if (!PLANTED || block != 3 || i != 5) out[i] = x[i] * weight[i];
  }
}
